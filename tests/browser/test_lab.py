"""The panel in JupyterLab and Notebook 7: what only a front end with a kernel does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import TimeoutError as WaitTimeoutError
from playwright.sync_api import expect

from tests.browser.lab import NO_CHUNK, NO_MODEL, start_lab
from tests.browser.panel import (
    APPS,
    LOAD,
    MASK,
    PANELS,
    busy_machine,
    open_again,
    open_panel,
    opens_again,
)
from tests.processes import sees_processes, until, using

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.browser.lab import Lab, Notebook

GONE = "This panel's kernel has ended. Run %load_ext gpu_magic to continue this panel."
TEN_MINUTES = 10 * 60 * 1000  # in milliseconds


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_clicks_choose_and_the_kernel_has_it(lab: Lab, app: str) -> None:
    notebook = open_panel(lab, app=app)
    expect(notebook.page.locator(".gpu-magic table").first).to_be_hidden()
    notebook.row(2).click()
    notebook.row(0).focus()
    keyboard = notebook.page.keyboard
    keyboard.press("Space")
    expect(notebook.line).to_have_text("%gpus 2,0")
    notebook.picture(f"{app}-clicked")
    notebook.button("Use these").click()
    expect(notebook.said).to_have_text(re.compile(r"cuda:0 = GPU 2 .*\ncuda:1 = GPU 0 "))
    assert notebook.badges() == {"0": "cuda:1", "2": "cuda:0"}
    assert notebook.ask(MASK) == "2,0"
    lab.change_machine(busy_machine())
    expect(notebook.row(1).locator(".gm-percent")).to_have_text("97 %")
    expect(notebook.said).to_contain_text("cuda:0 = GPU 2")  # a reading takes nothing back
    # The notebook's own shortcuts do not hear what is typed in the panel: no cell is added, cut or opened.
    cells = notebook.page.evaluate("notebook.content.widgets.length")
    notebook.row(3).click()
    places = (notebook.row(2), notebook.button("Reset"), notebook.button("None"), notebook.button("copy"))
    for where in places:
        where.focus()
        for key in ("b", "a", "x", "m"):
            keyboard.press(key)
    assert notebook.page.evaluate("notebook.content.widgets.length") == cells
    notebook.button("copy").click()
    expect(notebook.button("copied")).to_be_visible()
    assert notebook.page.evaluate("navigator.clipboard.readText()") == "%gpus 2,0,3"


@APPS
def test_a_choice_is_written_into_a_cell_and_lasts(lab: Lab, app: str) -> None:
    notebook = open_panel(lab, MASK, app=app)  # the panel stands in the last cell
    notebook.row(3).click()
    notebook.button("insert cell").click()
    assert notebook.sources()[2:4] == ["%gpu_panel", "%gpus 3"]
    notebook.row(1).click()
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("cuda:1 = GPU 1")
    notebook.button("insert cell").click()  # in place of the one before
    assert notebook.sources()[2:] == ["%gpu_panel", "%gpus 3,1"]
    notebook.page.evaluate("notebook.sessionContext.restartKernel()")
    for cell in (0, 2, 3):
        notebook.run(cell)
    assert notebook.ask(MASK) == "3,1"
    # What somebody has changed since is left alone.
    notebook.page.evaluate(
        "notebook.content.widgets[3].model.sharedModel.setSource('%gpus 3,1  # mine\\nx = 1')"
    )
    expect(notebook.button("insert cell")).to_be_visible()
    notebook.button("insert cell").click()
    assert notebook.sources()[2:5] == ["%gpu_panel", "%gpus 3,1", "%gpus 3,1  # mine\nx = 1"]


@opens_again
def test_panels_of_all_cells_and_pages_agree(lab: Lab) -> None:
    lab.harmless.append(NO_MODEL)
    one = open_panel(lab, "import gpu_magic; gpu_magic.panel()", own_page=True)
    one.run(1)
    one.run(2)
    expect(one.page.locator(".gm-panel")).to_have_count(2)
    one.page.evaluate("jupyterapp.commands.execute('notebook:create-output-view')")
    expect(one.page.locator(".gm-panel")).to_have_count(3)
    assert one.ask(PANELS) == "1"
    one.save()
    other = open_again(lab, one.page.evaluate("notebook.context.path"), panels=2)
    one.row(2).click()
    other.row(3).click()  # what is clicked belongs to a page
    for notebook, line, count in ((one, "%gpus 2", 3), (other, "%gpus 3", 2)):
        for number in range(count):
            expect(notebook.page.locator(".gm-line code").nth(number)).to_have_text(line)
    one.button("Use these").click()
    expect(other.row(2).locator(".gm-applied")).to_have_text("cuda:0")
    expect(other.line).to_have_text("%gpus 3")
    assert one.ask("%gpus 0").startswith("cuda:0 = GPU 0")
    for notebook in (one, other):
        expect(notebook.row(0).locator(".gm-badge")).to_contain_text("cuda:0")
    one.page.close()
    # A page that is loaded again goes on. JupyterLab gives a kernel four seconds to tell of its widgets, which can
    # be too few on a busy machine.
    for _ in range(5):
        other.page.reload()
        other.wait()
        with suppress(WaitTimeoutError):
            other.panel.wait_for(timeout=20_000)
            break
        warnings.warn("A page is loaded again: its panel did not come", stacklevel=2)
    expect(other.open(1)).to_contain_text("of 400 W")
    other.row(2).click()
    other.button("Use these").click()
    expect(other.said).to_contain_text("cuda:1 = GPU 2")


@sees_processes
def test_an_open_row_names_this_notebook_and_is_closed_by_the_next_run(lab: Lab) -> None:
    notebook = open_panel(lab)
    lab.change_machine(using(int(notebook.ask("import os; print(os.getpid())"))))
    process = notebook.open(1).locator(".gm-process")
    expect(process).to_contain_text("this kernel")
    expect(process.locator(".gm-detail-name")).to_contain_text(".ipynb")
    expect(process.locator("button:visible")).to_have_count(0)
    notebook.picture("detail")
    notebook.run(1)
    expect(notebook.detail(1)).to_have_count(0)
    until(lambda: notebook.ask(PANELS) == "1")


THREADS = "import threading; print([t.name for t in threading.enumerate()].count('gpu_magic-panel'))"


def reads(notebook: Notebook) -> bool:
    """Return whether a thread reads the machine; without a cell that would show anything."""
    answer: str = notebook.page.evaluate(
        """async code => {
            const kernel = notebook.sessionContext.session.kernel;
            const future = kernel.requestExecute({code, store_history: false});
            let text = '';
            future.onIOPub = message => { text += message.content.text ?? ''; };
            await future.done;
            return text;
        }""",
        THREADS,
    )
    return int(answer) == 1


def test_the_machine_is_read_while_a_panel_or_the_chip_is_in_sight(lab: Lab) -> None:
    notebook = open_panel(lab, "from IPython.display import HTML; HTML('<div style=height:3000px>')")
    page = notebook.page
    page.evaluate("jupyterapp.commands.execute('launcher:create')")  # a tab in front of it
    until(lambda: not reads(notebook))
    page.evaluate("jupyterapp.shell.activateById(notebook.id)")
    until(lambda: reads(notebook))
    # The panel is scrolled away, and the chip still wants figures, until that is out of sight also.
    page.evaluate("notebook.content.activeCellIndex = 0")
    page.wait_for_function(
        """panel => {
            notebook.content.scrollToItem(0, 'start');
            return panel.getBoundingClientRect().top > window.innerHeight;
        }""",
        arg=notebook.panel.element_handle(),
    )
    bar = "place => { document.getElementById('jp-main-statusbar').style.transform = place; }"
    page.evaluate(bar, "translateY(500px)")
    until(lambda: not reads(notebook))
    page.evaluate(bar, "")
    until(lambda: reads(notebook))


@pytest.mark.nightly
@opens_again
def test_a_closed_page_wants_no_figures(lab: Lab) -> None:
    notebook = open_panel(lab, own_page=True)
    name = notebook.page.evaluate("notebook.context.path")
    notebook.save()
    notebook.page.goto("about:blank")
    again = open_again(lab, name)  # the kernel is the same, and so is the panel
    until(lambda: reads(again))
    again.page.evaluate("document.getElementById('jp-main-statusbar').style.transform = 'translateY(500px)'")
    again.page.evaluate("jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    until(lambda: not reads(again))


@APPS
def test_a_saved_notebook_shows_the_table(lab: Lab, app: str) -> None:
    notebook = open_panel(lab, app=app, own_page=True)
    notebook.save()
    name = notebook.page.evaluate("notebook.context.path")
    notebook.page.close()
    for kernel in json.loads(lab.request("api/kernels")):
        lab.request(f"api/kernels/{kernel['id']}", "DELETE")
    lab.harmless.append(NO_MODEL)  # the front end looks for it, and says so
    again = lab.open_file(name, app=app)
    expect(again.page.locator(".gpu-magic table").first).to_be_visible()
    expect(again.page.get_by_text("model not found")).to_be_hidden()
    expect(again.page.get_by_text("Loading widget")).to_be_hidden()
    expect(again.page.locator(".gm-panel")).to_have_count(0)
    if app == "notebook":  # at night: it takes seconds
        export = [sys.executable, "-m", "nbconvert", "--to", "html", "--stdout", str(lab.root / name)]
        made = subprocess.run(export, check=True, capture_output=True, text=True).stdout
        page = lab.browser.new_page()
        page.set_content(made, wait_until="domcontentloaded")
        expect(page.locator(".gpu-magic table").first).to_be_visible()
        page.close()


@APPS
def test_a_kernel_that_is_shut_down_or_replaced(lab: Lab, app: str) -> None:
    notebook = open_panel(lab, app=app)
    notebook.row(2).click()
    expect(notebook.line).to_have_text("%gpus 2")
    notebook.page.evaluate("notebook.sessionContext.shutdown()")
    expect(notebook.cuda).to_have_text("no kernel")
    expect(notebook.said).to_have_text(GONE)
    expect(notebook.button("Use")).to_be_disabled()
    notebook.page.evaluate("notebook.sessionContext.changeKernel({name: 'python3'})")
    notebook.ask(LOAD)
    expect(notebook.cuda).to_have_text("CUDA not started")
    notebook.row(2).click()
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("cuda:0 = GPU 2")
    notebook.page.evaluate("notebook.context.model.dirty = false; notebook.close()")
    expect(notebook.panel).to_have_count(0)  # and that is no error


@pytest.mark.parametrize("dark", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_axe_finds_nothing_in_jupyterlab(lab: Lab, dark: bool) -> None:
    lab.change_machine(busy_machine())
    notebook = open_panel(lab, "%gpus 1", dark=dark)
    notebook.row(2).click()
    expect(notebook.open(1)).to_contain_text("of 400 W")
    notebook.page.wait_for_timeout(1500 if dark else 0)  # the theme's colors fade in
    found = Axe().run(notebook.page, ".gm-panel").response["violations"]
    assert not found, found


@pytest.mark.nightly
@pytest.mark.timeout(240)  # it waits 15 s in a page of its own
@pytest.mark.parametrize("cells", [[LOAD, "%gpu_panel"], [LOAD]], ids=["panel", "chip"])
def test_a_server_can_end_an_idle_kernel_whose_panel_or_chip_nobody_watches(
    tmp_path: Path, chromium: Browser, cells: list[str]
) -> None:
    culler = "--MappingKernelManager.cull_"
    options = [f"{culler}idle_timeout=12", f"{culler}interval=1", f"{culler}connected=True"]
    machine = {"GPU_MAGIC_SIMULATE": "8xA100-80GB seed=7"}  # its figures change at every reading
    with start_lab(tmp_path, chromium, machine, *options) as lab:
        lab.harmless.append(NO_CHUNK)
        notebook = lab.open(*cells, own_page=True)
        notebook.page.clock.install()
        for cell in range(len(cells)):
            notebook.run(cell)
        expect(notebook.chip).to_contain_text("SIMULATED")
        notebook.page.wait_for_timeout(15_000)
        assert lab.request("api/kernels") != "[]"  # one that is watched is in use
        notebook.page.clock.fast_forward(TEN_MINUTES)
        expect(notebook.chip).to_have_attribute("title", "Show the GPUs of this machine")  # not the kernel's
        assert lab.request("api/kernels") == "[]"
        lab.close_pages(keep_shared=False)
