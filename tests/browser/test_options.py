"""The panel's options: how frameworks may take memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.panel import LOAD, open_panel, picture, restart_and_use

if TYPE_CHECKING:
    from tests.browser.lab import Lab, Notebook

GROWTH = "import os; print(os.environ.get('TF_FORCE_GPU_ALLOW_GROWTH'))"


def open_options(notebook: Notebook) -> None:
    notebook.button("options").click()
    expect(notebook.panel.locator(".gm-options")).to_be_visible()


def test_options_are_a_part_of_the_choice(lab: Lab) -> None:
    notebook = open_panel(lab)
    growth = notebook.panel.get_by_label("as it is needed")
    limit = notebook.panel.get_by_label("at most")
    expect(growth).to_be_hidden()
    notebook.row(2).click()
    open_options(notebook)
    growth.check()
    expect(notebook.line).to_have_text("%gpus 2 --growth")
    limit.fill("8 GB")
    limit.press("Enter")
    expect(notebook.line).to_have_text("%gpus 2 --growth --memory-limit 8GB")
    picture(notebook, "options")
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("TensorFlow and JAX take memory as they need it")
    expect(notebook.said).to_contain_text("at most 8 GB of a GPU")
    assert notebook.ask(GROWTH) == "true"
    # They stay with the next choice, until they are taken back.
    notebook.row(0).click()
    expect(notebook.line).to_have_text("%gpus 2,0 --growth --memory-limit 8GB")
    growth.uncheck()
    limit.fill("")
    limit.press("Enter")
    expect(notebook.line).to_have_text("%gpus 2,0")
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("cuda:1 = GPU 0")
    assert notebook.ask(GROWTH) == "None"


def test_options_without_gpus_wait_for_them(lab: Lab) -> None:
    notebook = open_panel(lab)
    open_options(notebook)
    notebook.panel.get_by_label("as it is needed").check()
    expect(notebook.line).to_have_text("%gpus --growth")
    expect(notebook.button("Use these")).to_have_attribute("aria-disabled", "true")
    notebook.row(3).click()
    expect(notebook.line).to_have_text("%gpus 3 --growth")
    notebook.button("clear").click()
    expect(notebook.line).to_have_text("%gpus")
    expect(notebook.panel.get_by_label("as it is needed")).not_to_be_checked()


def test_a_limit_that_is_no_size_is_said_and_stays(lab: Lab) -> None:
    notebook = open_panel(lab)
    notebook.row(1).click()
    open_options(notebook)
    limit = notebook.panel.get_by_label("at most")
    limit.fill("much --force")
    limit.press("Enter")
    expect(notebook.said).to_have_text("much --force is not a size; try 8GB, or 8GiB.")
    expect(limit).to_have_value("much --force")
    expect(notebook.line).to_have_text("%gpus 1")
    limit.fill("900GB")
    limit.press("Enter")
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("--memory-limit 900GB is more than GPU 1 has")
    expect(notebook.line).to_have_text("%gpus 1 --memory-limit 900GB")


def test_what_was_typed_shows_in_the_panel(lab: Lab) -> None:
    notebook = open_panel(lab)
    notebook.ask("%gpus 1 --memory-limit 8GiB")
    expect(notebook.line).to_have_text("%gpus 1 --memory-limit 8GiB")
    expect(notebook.panel.get_by_label("at most")).to_have_value("8GiB")
    notebook.button("insert cell").click()
    written = notebook.page.locator(".jp-Notebook .jp-CodeCell").nth(2)
    expect(written.locator(".cm-content")).to_have_text("%gpus 1 --memory-limit 8GiB")


def test_every_panel_shows_the_options(lab: Lab) -> None:
    notebook = open_panel(lab, "%gpu_panel")
    panels = notebook.page.locator(".gm-panel")
    panels.nth(0).locator('[data-key="1"]').click()
    panels.nth(0).locator("button", has_text="options").click()
    panels.nth(0).get_by_label("as it is needed").check()
    expect(panels.nth(1).locator(".gm-line code")).to_have_text("%gpus 1 --growth")
    expect(panels.nth(1).get_by_label("as it is needed")).to_be_checked()


def test_options_survive_a_restart_with_their_choice(lab: Lab) -> None:
    notebook = open_panel(lab, "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)")
    expect(notebook.panel.locator(".gm-state")).to_have_text("CUDA started")
    notebook.row(2).click()
    open_options(notebook)
    notebook.panel.get_by_label("as it is needed").check()
    restart_and_use(notebook)
    expect(notebook.said).to_contain_text("restarted")
    notebook.ask(LOAD)
    assert notebook.ask(GROWTH) == "true"
