"""A row of the panel that is opened: its charts, its processes, and what can be done about them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from tests.browser.panel import LOAD, PANELS, open_panel, picture, restart
from tests.machine import CARDS, MIG, Driver
from tests.native import SOURCES
from tests.processes import DEAF, WAITS, running, sees_processes, until, using

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser.lab import Lab, Notebook


def detail_of(notebook: Notebook, key: object) -> Any:
    return notebook.page.locator(f'.gm-detail[data-key="{key}"]')


def chevron_of(notebook: Notebook, key: object) -> Any:
    return notebook.row(key).locator(".gm-chevron")


def test_a_click_on_the_chevron_opens_a_row_and_another_closes_it(lab: Lab) -> None:
    notebook = open_panel(lab)
    chevron = notebook.row(1).get_by_role("button", name="Details")
    expect(chevron).to_have_attribute("aria-expanded", "false")
    chevron.click()
    expect(chevron).to_have_attribute("aria-expanded", "true")
    detail = detail_of(notebook, 1)
    expect(detail).to_contain_text("56 of 400 W")
    expect(detail.locator(".gm-detail-memory .gm-detail-value")).to_have_text("0.5 / 80.0 GiB")
    expect(notebook.line).to_have_text("%gpus")  # it was not chosen
    chevron_of(notebook, 2).click()
    expect(notebook.page.locator(".gm-detail")).to_have_count(2)
    chevron.click()
    expect(chevron).to_have_attribute("aria-expanded", "false")
    expect(notebook.page.locator(".gm-detail")).to_have_count(1)


def test_the_arrows_open_and_close_a_row(lab: Lab) -> None:
    notebook = open_panel(lab)
    keyboard = notebook.page.keyboard
    notebook.row(1).focus()
    keyboard.press("ArrowRight")
    expect(detail_of(notebook, 1)).to_contain_text("of 400 W")
    expect(notebook.row(1)).to_be_focused()
    keyboard.press("ArrowLeft")
    expect(detail_of(notebook, 1)).to_have_count(0)
    keyboard.press("ArrowRight")
    keyboard.press("ArrowDown")
    expect(notebook.row(2)).to_be_focused()
    expect(detail_of(notebook, 1)).to_have_count(1)


@sees_processes
def test_escape_within_a_detail_closes_it_and_goes_back_to_its_row(lab: Lab, tmp_path: Path) -> None:
    with running(WAITS, tmp_path / "train.py") as process:
        lab.change_machine(using(process.pid))
        notebook = open_panel(lab)
        notebook.row(1).focus()
        notebook.page.keyboard.press("ArrowRight")
        end = detail_of(notebook, 1).get_by_role("button", name="End train.py")
        expect(end).to_be_visible()
        notebook.page.keyboard.press("ArrowRight")
        expect(end).to_be_focused()
        notebook.page.keyboard.press("Escape")
        expect(detail_of(notebook, 1)).to_have_count(0)
        expect(notebook.row(1)).to_be_focused()


@sees_processes
def test_a_process_of_ones_own_is_ended_after_a_question(lab: Lab, tmp_path: Path) -> None:
    with running(WAITS, tmp_path / "train.py", JPY_SESSION_NAME="work/<b>x</b>.ipynb") as process:
        lab.change_machine(using(process.pid))
        notebook = open_panel(lab)
        chevron_of(notebook, 1).click()
        row = detail_of(notebook, 1).locator(".gm-process")
        expect(row).to_contain_text("train.py")
        expect(row).to_contain_text(f"PID {process.pid}")
        expect(row).to_contain_text("from work/<b>x</b>.ipynb")
        expect(row).to_contain_text("2.0 GiB")
        row.get_by_role("button", name="End train.py").click()
        question = row.get_by_role("alertdialog")
        expect(question).to_contain_text(f"End train.py (PID {process.pid})? It gets TERM.")
        picture(notebook, "detail-question")
        question.get_by_role("button", name="Cancel").click()
        expect(question).to_have_count(0)
        assert process.poll() is None
        row.get_by_role("button", name="End train.py").click()
        question.get_by_role("button", name="End").click()
        assert process.wait() == -15


@sees_processes
def test_a_process_that_ignores_term_can_be_killed(lab: Lab, tmp_path: Path) -> None:
    with running(DEAF, tmp_path / "deaf.py") as process:
        lab.change_machine(using(process.pid))
        notebook = open_panel(lab)
        chevron_of(notebook, 1).click()
        row = detail_of(notebook, 1).locator(".gm-process")
        row.get_by_role("button", name="End deaf.py").click()
        row.get_by_role("alertdialog").get_by_role("button", name="End").click()
        expect(row.locator("button")).to_be_disabled()
        row.get_by_role("button", name="Kill deaf.py").click()
        row.get_by_role("alertdialog").get_by_role("button", name="Kill").click()
        assert process.wait() == -9


@sees_processes
def test_this_kernel_is_marked_with_its_notebook_and_can_not_be_ended(lab: Lab) -> None:
    notebook = open_panel(lab)
    lab.change_machine(using(int(notebook.ask("import os; print(os.getpid())"))))
    chevron_of(notebook, 1).click()
    row = detail_of(notebook, 1).locator(".gm-process")
    expect(row).to_contain_text("this kernel")
    expect(row.locator(".gm-detail-name")).to_contain_text(".ipynb")
    expect(row.locator("button:visible")).to_have_count(0)
    picture(notebook, "detail")


def test_a_page_that_is_loaded_again_can_open_rows_again(lab: Lab) -> None:
    notebook = open_panel(lab, own_page=True)
    chevron_of(notebook, 1).click()
    expect(detail_of(notebook, 1)).to_contain_text("of 400 W")
    notebook.save()
    notebook.page.reload()
    notebook.wait()
    chevron_of(notebook, 1).click()
    expect(detail_of(notebook, 1)).to_contain_text("of 400 W")


def test_a_mig_instance_has_memory_and_no_power(lab: Lab) -> None:
    lab.change_machine(Driver((replace(CARDS[0], mig=MIG), *CARDS[1:])))
    notebook = open_panel(lab)
    chevron_of(notebook, MIG[0].uuid).click()
    detail = detail_of(notebook, MIG[0].uuid)
    expect(detail.locator(".gm-detail-memory .gm-detail-value")).to_have_text("0.2 / 40.0 GiB")
    expect(detail.locator(".gm-detail-power")).to_be_hidden()
    expect(detail.locator(".gm-figure:visible")).to_have_count(1)


def test_what_the_driver_does_not_give_is_left_out(lab: Lab) -> None:
    unknown = replace(CARDS[0], used=None, util=None, temperature=None, milliwatts=None)
    lab.change_machine(Driver((unknown, *CARDS[1:])))
    notebook = open_panel(lab)
    chevron_of(notebook, 0).click()
    detail = detail_of(notebook, 0)
    expect(detail.locator(".gm-detail-processes")).to_be_visible()
    expect(detail.locator(".gm-figure:visible")).to_have_count(0)
    expect(detail.locator(".gm-detail-power")).to_be_hidden()
    assert "0" not in detail.inner_text()


def test_a_cell_that_is_run_again_has_no_open_row(lab: Lab) -> None:
    notebook = open_panel(lab)
    for _ in range(5):
        chevron_of(notebook, 1).click()
        expect(detail_of(notebook, 1)).to_contain_text("of 400 W")
        notebook.run(1)
        expect(detail_of(notebook, 1)).to_have_count(0)
    until(lambda: notebook.ask(PANELS) == "1")


def test_a_kernel_that_was_restarted_has_no_open_row(lab: Lab) -> None:
    notebook = open_panel(lab)
    chevron_of(notebook, 1).click()
    expect(detail_of(notebook, 1)).to_contain_text("of 400 W")
    restart(notebook)
    notebook.run(0)
    expect(detail_of(notebook, 1)).to_have_count(0)


def test_variables_are_shown_and_freed(lab: Lab) -> None:
    kernel = lab.add_kernel("cupy", str(SOURCES / "standin"))
    notebook = lab.open(
        LOAD, "import cupy\nmodel = cupy.ones(1 << 17)\ncupy.ones(1 << 18)", "%gpu_panel", kernel=kernel
    )
    for cell in range(3):
        notebook.run(cell)
    chevron_of(notebook, 0).click()
    variables = detail_of(notebook, 0).locator(".gm-detail-variables")
    expect(variables).to_contain_text("model")
    expect(variables).to_contain_text("1.0 MiB")
    picture(notebook, "detail-variables")
    variables.get_by_role("button", name="Free what can be freed").click()
    expect(notebook.said).to_contain_text("Dropped Out[")
    expect(notebook.said).to_contain_text("Still held by model (1.0 MiB)")
    notebook.ask("del model")
    expect(variables).to_be_hidden()
