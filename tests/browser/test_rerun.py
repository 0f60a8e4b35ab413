"""Too late: one click changes the cell of the choice, restarts the kernel, and runs the cells above again."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from gpu_magic.testing import start_cuda
from tests.browser.panel import APPS, LOAD, MASK, PICTURES
from tests.machine import CARDS, Driver
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Locator, Route

    from tests.browser.lab import Lab, Notebook
    from tests.browser.standalone import LivePanel

START_CUDA = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"
LABEL = "Restart, and run the cells above again"


def too_late(lab: Lab, *cells: str, **how: Any) -> Notebook:
    """Open a notebook and run its cells, the last of which chooses too late."""
    notebook = lab.open(*cells, **how)
    for cell in range(len(cells)):
        notebook.run(cell)
    expect(notebook.chip).to_contain_text("CUDA started")
    return notebook


def again(notebook: Notebook) -> Locator:
    """Return the button below "Too late"."""
    return notebook.page.locator("input.gm-rerun")


def last_output(notebook: Notebook) -> Locator:
    """Return what the last cell has written."""
    return notebook.page.locator(".jp-Cell").last.locator(".jp-OutputArea-output")


def ask(notebook: Notebook, button: Locator | None = None) -> Locator:
    """Click a button, else that below "Too late"; return the question."""
    (button or again(notebook)).click()
    return notebook.page.locator(".jp-Dialog")


def expect_told(notebook: Notebook, text: str) -> None:
    """Wait for a notification of the application."""
    expect(notebook.page.locator(".Toastify__toast", has_text=text)).to_be_visible()


def as_read_only(route: Route) -> None:
    """Answer as the server does about a file that this user may not write; root may write every file."""
    response = route.fetch()
    route.fulfill(response=response, json=response.json() | {"writable": False})


def agree(question: Locator) -> None:
    question.get_by_role("button", name="Restart and run").click()


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_one_click_below_too_late(lab: Lab, app: str) -> None:
    cells = (LOAD, "%gpus 2,0", START_CUDA, f"{MASK}; ran = True", "%gpus 3")
    notebook = too_late(lab, *cells, app=app)
    notebook.page.screenshot(path=PICTURES / f"{app}-too-late.png")
    view = notebook.page.viewport_size
    notebook.page.set_viewport_size({"width": 480, "height": 900})
    expect(again(notebook)).to_be_visible()
    assert again(notebook).evaluate(  # its text is in lines where the page is narrow
        "one => one.getBoundingClientRect().right <= one.closest('.jp-OutputArea-output').getBoundingClientRect().right + 1"
    )
    notebook.page.set_viewport_size(view)
    question = ask(notebook)
    expect(question.locator("p").first).to_have_text("Cell [2] changes:")
    expect(question.locator("del")).to_have_text("%gpus 2,0")
    expect(question.locator("ins")).to_have_text("%gpus 3")
    expect(question).to_contain_text("5 cells run, up to cell [5].")
    notebook.page.screenshot(path=PICTURES / f"{app}-rerun-question.png")
    found = Axe().run(notebook.page, ".gm-rerun-question").response["violations"]
    assert not found, found
    question.get_by_role("button", name="Cancel").click()
    assert notebook.sources() == list(cells)
    kernel = notebook.kernel()
    agree(ask(notebook))
    expect(last_output(notebook)).to_contain_text("cuda:0 = GPU 3")
    assert notebook.sources() == [LOAD, "%gpus 3", *cells[2:]]
    assert notebook.outputs(3) == "3\n"
    assert notebook.kernel() == kernel
    expect(notebook.page.locator(".jp-Dialog")).to_have_count(0)
    notebook.page.screenshot(path=PICTURES / f"{app}-rerun-done.png")


def test_one_click_in_a_panel_without_a_cell_that_made_the_choice(lab: Lab) -> None:
    """Another choice above, which is not alone in its cell, does not undo the new one."""
    cells = (LOAD, f"import os\n%gpus 1\n{START_CUDA}", MASK, "1 / 1", "%gpu_panel", "below = 1")
    notebook = too_late(lab, *cells)
    notebook.row(1).click()
    notebook.row(3).click()
    notebook.page.screenshot(path=PICTURES / "lab-rerun-panel.png")
    question = ask(notebook, notebook.button(LABEL))
    expect(question.locator("p").first).to_have_text("A new first cell:")
    expect(question.locator("ins")).to_have_text([LOAD, "%gpus 3"])
    expect(question).to_contain_text("6 cells run, up to cell [5].")
    notebook.page.screenshot(path=PICTURES / "lab-rerun-new-cell.png")
    agree(question)
    until(lambda: notebook.outputs(3) == "3\n")  # the panel also had this line before the restart
    expect(notebook.line).to_have_text("%gpus 3")
    expect(notebook.cuda).to_have_text("CUDA started")
    assert notebook.sources() == [f"{LOAD}\n%gpus 3", *cells]
    assert notebook.outputs(2).startswith(
        "GPU 3, as chosen with --restart. To choose 1 instead, run this again."
    )
    assert notebook.outputs(6) == ""
    notebook.page.screenshot(path=PICTURES / "lab-rerun-panel-done.png")


def test_from_the_panel_beside_the_notebook_the_selected_cell_is_the_last_to_run(lab: Lab) -> None:
    cells = (LOAD, "%gpus 2", START_CUDA, f"{MASK}; print('selected')", "print('below')")
    notebook = too_late(lab, *cells)
    notebook.chip.click()
    notebook.page.evaluate("notebook.content.activeCellIndex = 3")
    notebook.row(2).click()
    notebook.row(3).click()
    question = ask(notebook, notebook.button(LABEL))
    expect(question).to_contain_text("4 cells run, up to cell [4].")
    agree(question)
    expect(notebook.page.locator(".jp-OutputArea-output", has_text="3\nselected")).to_have_count(1)
    assert notebook.outputs(4) == "below\n"  # of before
    assert notebook.sources() == [LOAD, "%gpus 3", *cells[2:]]


@APPS
def test_a_cell_that_fails_stops_the_run(lab: Lab, app: str) -> None:
    fails_again = "import os; assert os.environ['CUDA_VISIBLE_DEVICES'] == '2', 'not GPU 2'"
    cells = (LOAD, "%gpus 2", fails_again, f"{START_CUDA}; print('below')", "%gpus 3")
    notebook = too_late(lab, *cells, app=app)
    agree(ask(notebook))
    expect_told(notebook, "The kernel was restarted. Cell [3] failed, so the cells below it did not run.")
    notebook.page.screenshot(path=PICTURES / f"{app}-rerun-failed.png")
    assert "not GPU 2" in notebook.outputs(2)
    assert notebook.page.evaluate("notebook.content.activeCellIndex") == 2
    expect(again(notebook)).to_have_count(1)
    expect(notebook.chip).to_contain_text("GPU 3 · 1/80 GiBCUDA not started")


def test_a_running_cell_ends_before_the_restart(lab: Lab) -> None:
    go = lab.root / f"{secrets.token_hex(4)}.go"
    wait = f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.05)\nprint('ended')"
    notebook = too_late(lab, LOAD, "%gpus 2", START_CUDA, "%gpus 3")
    notebook.start(notebook.add(wait))
    notebook.page.wait_for_function("notebook.sessionContext.session.kernel.status === 'busy'")
    question = ask(notebook)
    expect(question).to_contain_text("A cell runs now. The kernel restarts when it is free.")
    agree(question)
    expect(question).to_have_count(0)
    assert notebook.sources()[1] == "%gpus 2"
    go.touch()
    expect(notebook.page.locator(".jp-OutputArea-output", has_text="cuda:0 = GPU 3")).to_have_count(3)
    assert "ended" in notebook.outputs(4)


def test_a_read_only_notebook_stays_as_it_is_and_the_run_has_the_choice(lab: Lab) -> None:
    cells = (LOAD, "%gpus 2,0", START_CUDA, MASK, "%gpus 3")
    notebook = too_late(lab, *cells)
    notebook.save()
    notebook.page.route("**/api/contents/**", as_read_only)
    notebook.page.evaluate("notebook.context.revert()")  # reads the file again
    question = ask(notebook)
    expect(question.locator("p").first).to_have_text(
        "The notebook is read-only, so it stays as it is. This run has %gpus 3 in place of its own choice."
    )
    agree(question)
    expect(last_output(notebook)).to_contain_text("cuda:0 = GPU 3")
    assert notebook.sources() == list(cells)
    assert notebook.outputs(1) == "GPU 3, as chosen with --restart. To choose 2,0 instead, run this again."
    assert notebook.outputs(3) == "3\n"


def test_of_two_views_of_a_notebook_the_clicked_one_says_how_far_cells_run(lab: Lab) -> None:
    notebook = too_late(lab, LOAD, "%gpus 2", START_CUDA, "%gpus 3", "print('below')")
    notebook.page.evaluate(
        """async () => {
            window.first = notebook;
            window.notebook = await jupyterapp.commands.execute('docmanager:clone', {widgetId: notebook.id})
                ?? jupyterapp.shell.currentWidget;
            await notebook.revealed;
            first.content.activeCellIndex = 0;
        }"""
    )
    buttons = notebook.page.locator("input.gm-rerun:visible")
    question = ask(notebook, buttons.last)
    expect(question).to_contain_text("4 cells run, up to cell [4].")
    notebook.page.screenshot(path=PICTURES / "lab-rerun-two-views.png")
    agree(question)
    expect(notebook.page.locator(".jp-OutputArea-output", has_text="cuda:0 = GPU 3")).to_have_count(6)
    assert notebook.sources()[:2] == [LOAD, "%gpus 3"]
    assert notebook.page.evaluate("[first.content.activeCellIndex, notebook.content.activeCellIndex]") == [
        0,
        3,
    ]


def test_what_the_kernel_refuses_changes_nothing(lab: Lab) -> None:
    cells = (LOAD, "%gpus 2", START_CUDA, "kept = 1", "%gpus 3")
    notebook = too_late(lab, *cells)
    lab.change_machine(Driver(CARDS[:3]))
    agree(ask(notebook))
    expect_told(notebook, "The kernel was not restarted. ")
    assert notebook.sources() == list(cells)
    assert notebook.ask("print(kept)") == "1"


def test_a_kernel_that_does_not_come_back_loses_no_cell(lab: Lab) -> None:
    cells = (LOAD, "%gpus 2", f"{START_CUDA}; print('as it was')", "%gpus 3")
    notebook = too_late(lab, *cells)
    lab.harmless.append("console: Failed to load resource: .*")
    notebook.page.route("**/api/kernels/*/restart*", lambda route: route.fulfill(status=500, body="{}"))
    agree(ask(notebook))
    expect_told(notebook, "The kernel did not restart, so no cell ran")
    assert notebook.sources() == [LOAD, "%gpus 3", *cells[2:]]
    assert "as it was" in notebook.outputs(2)


def test_a_page_of_vs_code_says_what_to_click(live: Callable[..., LivePanel]) -> None:
    """It has no such extension."""
    panel = live()
    start_cuda()
    panel.page.evaluate("document.body.dataset.vscodeThemeKind = 'vscode-light'")
    panel.exchange().click(3)
    expect(panel.button(LABEL)).to_be_hidden()
    panel.button("Restart kernel and use these").click()
    expect(panel.page.get_by_role("alertdialog")).to_contain_text("click Execute Above Cells")
