"""A panel is alive or plainly not: what it shows when its kernel ends, is silent, or nobody looks for long."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.lab import start_lab
from tests.browser.panel import LOAD, PANELS, open_panel
from tests.browser.standalone import panel_page, state_of, tell
from tests.machine import CARDS, Driver, environment

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.browser.lab import Lab, Notebook

TEN_MINUTES = 10 * 60 * 1000  # in milliseconds


def open_timed_panel(lab: Lab) -> Notebook:
    """Open a panel in a page whose clock the test turns."""
    lab.harmless.append("ChunkLoadError")  # what the page was loading has then taken too long
    notebook = lab.open(LOAD, "%gpu_panel", own_page=True)
    notebook.page.clock.install()
    notebook.run(0)
    notebook.run(1)
    expect(notebook.panel).to_be_visible()
    return notebook


def is_off(notebook: Notebook) -> None:
    """Expect a panel that takes no click, and shows it."""
    expect(notebook.button("None")).to_be_disabled()
    expect(notebook.button("Use")).to_be_disabled()
    expect(notebook.panel).to_have_class(re.compile("gm-old"))
    line = notebook.line.text_content()
    notebook.row(1).click(force=True)
    notebook.row(2).click(force=True)
    expect(notebook.line).to_have_text(line)


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_a_kernel_that_is_shut_down(lab: Lab, app: str) -> None:
    notebook = open_panel(lab, app=app)
    notebook.row(2).click()
    expect(notebook.line).to_have_text("%gpus 2")
    notebook.page.evaluate("notebook.sessionContext.shutdown()")
    expect(notebook.panel.locator(".gm-state")).to_have_text("no kernel")
    expect(notebook.said).to_have_text(
        "The kernel of this panel has gone. After the next %load_ext gpu_magic, this panel goes on."
    )
    is_off(notebook)


def test_a_kernel_that_says_nothing(lab: Lab) -> None:
    notebook = open_timed_panel(lab)
    kernel = int(notebook.ask("import os; print(os.getpid())"))
    os.kill(kernel, signal.SIGSTOP)
    try:
        notebook.page.clock.fast_forward(29_000)
        expect(notebook.panel.locator(".gm-stale")).to_contain_text("no figures for ")
        expect(notebook.said).to_contain_text("The kernel does not answer")
        is_off(notebook)
    finally:
        os.kill(kernel, signal.SIGCONT)
    expect(notebook.panel.locator(".gm-stale")).to_have_text("")
    expect(notebook.said).to_have_text("")
    notebook.row(2).click()
    expect(notebook.line).to_have_text("%gpus 2")


def test_a_state_that_was_saved_a_moment_ago_makes_no_live_panel(chromium: Browser) -> None:
    """An exported page has the widget's state, and can have the widget's code, but no kernel."""
    state = state_of("4xA100-80GB")
    with panel_page(chromium, state, is_live=False) as page:
        page.wait_for_timeout(1500)
        expect(page.locator(".gm-panel")).to_be_hidden()
        tell(page, state)
        expect(page.locator(".gm-panel")).to_be_visible()


def test_a_server_without_the_page_s_part_shows_the_table_and_what_to_install(
    native: Path, tmp_path: Path, chromium: Browser
) -> None:
    Driver(CARDS).write(tmp_path / "machine")
    disabled = tmp_path / "config" / "labconfig"
    disabled.mkdir(parents=True)
    (disabled / "page_config.json").write_text('{"disabledExtensions": {"anywidget": true}}')
    with start_lab(tmp_path, chromium, environment(native, tmp_path / "machine")) as lab:
        lab.harmless.extend(["anywidget", "Failed to load"])
        notebook = lab.open(LOAD, "%gpu_panel")
        notebook.run(0)
        notebook.run(1)
        expect(notebook.page.locator(".gpu-magic table").first).to_be_visible()
        expect(notebook.page.locator(".gm-fallback")).to_contain_text(
            "pip install anywidget where the Jupyter server"
        )
        assert notebook.panel.count() == 0
        # The extension brings what shows a panel from the kernel, and needs no other part.
        notebook.page.locator(".gm-chip").click()
        notebook.row(2).click()
        expect(notebook.line).to_have_text("%gpus 2")
        lab.close_pages(keep_shared=False)


def test_closing_a_notebook_is_no_error(lab: Lab) -> None:
    notebook = open_panel(lab)
    notebook.page.evaluate("notebook.context.model.dirty = false; notebook.close()")
    expect(notebook.panel).to_have_count(0)


def test_all_cells_show_the_one_panel_of_the_kernel(lab: Lab) -> None:
    notebook = open_panel(lab, "import gpu_magic; gpu_magic.panel()")
    for cell in (1, 2, 2):
        notebook.run(cell)
    expect(notebook.page.locator(".gm-panel")).to_have_count(2)
    assert notebook.ask(PANELS) == "1"
    notebook.row(2).click()
    for number in range(2):
        expect(notebook.page.locator(".gm-line code").nth(number)).to_have_text("%gpus 2")


def test_a_panel_that_nobody_watches_pauses_and_goes_on_with_the_first_movement(lab: Lab) -> None:
    notebook = open_timed_panel(lab)
    stale = notebook.panel.locator(".gm-stale")
    notebook.page.clock.fast_forward(TEN_MINUTES)
    notebook.page.clock.fast_forward(30_000)
    expect(stale).to_have_text("paused, as nobody has used this page for ten minutes")
    notebook.page.mouse.move(200, 200)
    expect(stale).to_have_text("")
    notebook.row(2).click()
    expect(notebook.line).to_have_text("%gpus 2")


def test_a_server_can_end_an_idle_kernel_whose_panel_nobody_watches(
    tmp_path: Path, chromium: Browser
) -> None:
    culler = "--MappingKernelManager.cull_"
    options = [f"{culler}idle_timeout=12", f"{culler}interval=1", f"{culler}connected=True"]
    machine = {"GPU_MAGIC_SIMULATE": "8xA100-80GB seed=7"}  # its figures change at every reading
    with start_lab(tmp_path, chromium, machine, *options) as lab:
        notebook = open_timed_panel(lab)
        notebook.page.wait_for_timeout(15_000)
        assert lab.request("api/kernels") != "[]"  # one that is watched is in use
        notebook.page.clock.fast_forward(TEN_MINUTES)
        expect(notebook.panel.locator(".gm-state")).to_have_text("no kernel")
        assert lab.request("api/kernels") == "[]"
        lab.close_pages(keep_shared=False)
