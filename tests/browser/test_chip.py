"""The chip: there where gpu_magic is loaded, and a click opens the panel beside the notebook."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.lab import NO_COMM
from tests.browser.panel import APPS, LOAD, PICTURES, busy_machine, restart, unanswered
from tests.browser.test_restart import START_CUDA
from tests.processes import until

if TYPE_CHECKING:
    from tests.browser.lab import Lab, Notebook

COMMS = "import comm; print([one.target_name for one in comm.get_comm_manager().comms.values()])"
VIEWS = (
    "from gpu_magic.panel.state import panel_state\n"
    "print(*(len(views) for views in panel_state()._views.values()))"
)
NOTE_MESSAGES = """() => {
    window.sent = [];
    notebook.sessionContext.session.kernel.anyMessage.connect((_, {msg, direction}) => {
        if (direction === 'send') sent.push(msg.header.msg_type);
    });
}"""


def open_chip(lab: Lab, *cells: str, **how: Any) -> Notebook:
    """Open a notebook whose kernel has gpu_magic, and no panel."""
    notebook = lab.open(LOAD, *cells, **how)
    for cell in range(len(cells) + 1):
        notebook.run(cell)
    expect(notebook.chip).to_contain_text("CUDA")  # before that, it shows what the server sees
    return notebook


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_the_chip_is_there_once_gpu_magic_is_loaded(lab: Lab, app: str) -> None:
    notebook = lab.open("1 + 1", "import json  # gpu_magic", LOAD, f"%gpus 2,1\n{START_CUDA}", app=app)
    notebook.page.evaluate(NOTE_MESSAGES)
    with unanswered(notebook):
        notebook.run(0)
    # A kernel without gpu_magic is asked for its comms, and nothing else.
    notebook.run(1)
    notebook.page.wait_for_function("sent.includes('comm_info_request')")
    assert not set(notebook.page.evaluate("sent")) & {"comm_open", "comm_msg"}
    expect(notebook.chip).to_have_text("4 of 4 GPUs free")  # as the server sees them: see test_machine.py
    notebook.run(2)
    expect(notebook.chip).to_have_text("all 4 GPUs · 2/320 GiBCUDA not started")
    notebook.run(3)
    expect(notebook.chip).to_have_text("GPUs 2,1 · 1/160 GiBCUDA started")
    lab.change_machine(busy_machine())
    expect(notebook.chip).to_have_text("GPUs 2,1 · 61/160 GiBCUDA started")
    found = Axe().run(notebook.page, ".gm-chip").response["violations"]
    assert not found, found


@APPS
def test_it_tells_that_other_code_has_replaced_the_choice(lab: Lab, app: str) -> None:
    notebook = open_chip(lab, "%gpus 2,0", "import os; os.environ['CUDA_VISIBLE_DEVICES'] = '1'", app=app)
    expect(notebook.chip).to_have_text("GPU 1 · 1/80 GiBCUDA not startedchoice replaced")
    expect(notebook.chip).to_have_attribute("title", re.compile("CUDA_VISIBLE_DEVICES=1 .* %gpus 2,0"))
    found = Axe().run(notebook.page, ".gm-chip").response["violations"]
    assert not found, found
    notebook.chip.screenshot(path=PICTURES / f"{app}-chip-replaced.png")
    notebook.ask("%gpus 2,0")
    expect(notebook.chip).to_have_text("GPUs 2,0 · 1/160 GiBCUDA not started")
    expect(notebook.chip).to_have_attribute("title", "Open the panel of the GPUs")


@pytest.mark.nightly
@pytest.mark.parametrize("theme", ["Light", "Dark"])
@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_it_can_be_read_in_each_theme(lab: Lab, app: str, theme: str) -> None:
    notebook = open_chip(lab, "%gpus 2", START_CUDA, app=app, own_page=True)
    notebook.page.evaluate(  # the server keeps the one that was chosen last
        f"jupyterapp.commands.execute('apputils:change-theme', {{theme: 'JupyterLab {theme}'}})"
    )
    is_light = "true" if theme == "Light" else "false"
    notebook.page.wait_for_selector(f"body[data-jp-theme-light={is_light}]", state="attached")
    expect(notebook.chip).to_contain_text("CUDA started")
    found = Axe().run(notebook.page, ".gm-chip").response["violations"]
    assert not found, found
    PICTURES.mkdir(parents=True, exist_ok=True)
    notebook.page.screenshot(path=PICTURES / f"{app}-chip-{theme}.png")


@APPS
def test_a_click_opens_a_live_panel_beside_the_notebook(lab: Lab, app: str) -> None:
    notebook = open_chip(lab, "x = 1", "%gpu_panel", app=app)
    notebook.chip.focus()
    notebook.page.keyboard.press("Enter")
    panels = notebook.page.locator(".gm-panel")
    expect(panels).to_have_count(2)
    notebook.chip.click()
    expect(panels).to_have_count(2)
    beside = notebook.page.locator(".gm-beside .gm-panel")
    beside.locator('[data-key="3"]').click()
    beside.get_by_role("button", name="Use these").click()
    for number in range(2):  # it and that of the cell agree
        expect(panels.nth(number).locator(".gm-line code")).to_have_text("%gpus 3")
        expect(panels.nth(number).locator(".gm-said")).to_contain_text("cuda:0 = GPU 3")
    expect(notebook.chip).to_contain_text("GPU 3")
    # The line is written below the active cell, and after that in place of the one before.
    notebook.page.evaluate("notebook.content.activeCellIndex = 1")
    beside.get_by_role("button", name="insert cell").click()
    expect(beside.get_by_role("button", name="inserted")).to_be_visible()
    assert notebook.sources() == [LOAD, "x = 1", "%gpus 3", "%gpu_panel"]
    notebook.page.evaluate("notebook.content.activeCellIndex = 3")
    beside.locator('[data-key="1"]').click()
    beside.locator(".gm-copy", has_text="insert").click()
    assert notebook.sources() == [LOAD, "x = 1", "%gpus 3,1", "%gpu_panel"]
    notebook.page.evaluate("notebook.context.model.dirty = false; notebook.close()")
    expect(panels).to_have_count(0)  # it goes with its notebook
    expect(notebook.chip).to_have_count(0)


def test_each_notebook_has_a_chip_of_its_own(lab: Lab) -> None:
    notebook = open_chip(lab)
    notebook.page.evaluate("() => { window.first = notebook }")  # which is too deep to be returned
    notebook.chip.click()
    expect(notebook.panel).to_be_visible()
    until(lambda: notebook.ask(VIEWS) == "2")  # a view says that it is on screen, a moment after it is
    other = lab.open("1 + 1")
    other.run(0)
    expect(notebook.page.locator(".gm-chip:visible")).to_have_text("4 of 4 GPUs free")  # it has no gpu_magic
    notebook.row(3).click()
    notebook.button("insert cell").click()  # into the notebook whose chip was clicked
    expect(notebook.button("inserted")).to_be_visible()
    assert other.sources() == ["1 + 1"]
    notebook.page.evaluate("() => { window.notebook = first; jupyterapp.shell.activateById(first.id); }")
    assert "%gpus 3" in notebook.sources()
    expect(notebook.page.locator(".gm-chip:visible")).to_have_count(1)
    # A panel that is closed leaves no view, and can be opened again.
    tab = notebook.page.locator(".lm-TabBar-tab", has_text="GPUs").first
    tab.locator(".lm-TabBar-tabCloseIcon").click()
    expect(notebook.panel).to_have_count(0)
    until(lambda: notebook.ask(VIEWS) == "1")
    notebook.page.locator(".gm-chip:visible").click()
    expect(notebook.panel).to_be_visible()


def test_the_panel_beside_fits_into_every_window(lab: Lab) -> None:
    notebook = open_chip(lab, own_page=True)
    page = notebook.page
    page.evaluate("jupyterapp.shell.collapseLeft()")  # the file browser leaves no room
    notebook.chip.click()
    notebook.row(1).click()
    for width in range(280, 1201, 80):
        page.set_viewport_size({"width": width, "height": 400})
        page.wait_for_function(
            """width => {
                const panel = document.querySelector('.gm-panel');
                const edge = document.querySelector('#jp-main-dock-panel').getBoundingClientRect().right;
                return window.innerWidth === width && panel.getBoundingClientRect().right <= edge &&
                    panel.scrollWidth <= panel.clientWidth;
            }""",
            arg=width,
        )
    page.set_viewport_size({"width": 1240, "height": 300})  # what is higher is scrolled
    expect(notebook.button("Use these")).not_to_be_in_viewport()
    notebook.panel.hover(position={"x": 50, "y": 10})
    page.mouse.wheel(0, 2000)
    expect(notebook.button("Use these")).to_be_in_viewport()


def test_a_script_that_could_not_be_loaded_is_loaded_at_the_next_look(lab: Lab) -> None:
    lab.harmless.append(r"(page error|console): .*(dynamically imported module|blob:none).*")
    notebook = lab.open(LOAD, "x = 1  # gpu_magic", own_page=True)
    page = notebook.page
    # As a policy for content does that forbids such scripts.
    page.evaluate(
        "() => { window.make = URL.createObjectURL; URL.createObjectURL = () => { URL.tried = true; return 'blob:none'; }; }"
    )
    notebook.run(0)
    page.wait_for_function("URL.tried")
    page.evaluate("() => { URL.createObjectURL = make; }")
    notebook.run(1)
    expect(notebook.chip).to_contain_text("CUDA")
    hearers = page.evaluate(
        "globalThis[Symbol.for('gpu_magic.comms')].get(notebook.sessionContext.session.kernel).hearers.size"
    )
    assert hearers == 1  # nothing is left of the first look


def test_a_late_answer_of_the_kernel_before_changes_nothing(lab: Lab) -> None:
    notebook = lab.open("x = 1  # gpu_magic", LOAD, own_page=True)
    page = notebook.page
    notebook.run(0)
    expect(notebook.chip).to_have_text("4 of 4 GPUs free")
    page.evaluate(
        """() => {
            const kernel = notebook.sessionContext.session.kernel;
            const ask = kernel.requestCommInfo.bind(kernel);
            kernel.requestCommInfo = async (...about) => {
                const answer = await ask(...about);
                return new Promise((done) => { window.answer = () => done(answer); });
            };
        }"""
    )
    notebook.run(0)
    page.wait_for_function("'answer' in window")  # which tells of no gpu_magic
    page.evaluate("notebook.sessionContext.changeKernel({name: 'python3'})")
    notebook.run(1)
    expect(notebook.chip).to_contain_text("CUDA")
    page.evaluate("answer()")
    page.evaluate("() => new Promise((done) => setTimeout(done))")  # after all that follows from it
    assert "CUDA" in notebook.chip.inner_text()
    assert page.evaluate("document.querySelectorAll('.gm-chip').length") == 1


def test_it_comes_back_once_the_panel_of_an_ended_kernel_is_closed(lab: Lab) -> None:
    notebook = open_chip(lab)
    notebook.chip.click()
    expect(notebook.panel).to_be_visible()
    restart(notebook)
    for _ in range(2):  # after that, the page has looked for gpu_magic in the new kernel
        notebook.ask("1 + 1")
    expect(notebook.chip).to_be_hidden()  # the panel is still open
    notebook.page.locator(".lm-TabBar-tab", has_text="GPUs").locator(".lm-TabBar-tabCloseIcon").click()
    expect(notebook.panel).to_have_count(0)
    expect(notebook.chip).to_be_visible()
    expect(notebook.chip).to_have_text("4 of 4 GPUs free")  # the new kernel has not loaded gpu_magic
    notebook.chip.click()
    expect(notebook.page.locator(".gm-machine li")).to_have_count(4)


@APPS
def test_it_goes_with_gpu_magic_and_comes_back(lab: Lab, app: str) -> None:
    notebook = open_chip(lab, app=app)
    notebook.chip.click()
    expect(notebook.panel).to_be_visible()
    notebook.ask("%unload_ext gpu_magic")
    expect(notebook.chip).to_be_hidden()
    expect(notebook.said).to_contain_text("gpu_magic was unloaded. To choose here: %load_ext gpu_magic")
    assert "gpu_magic" not in notebook.ask(COMMS)
    notebook.ask(LOAD)
    expect(notebook.chip).to_be_visible()
    expect(notebook.said).to_have_text("")
    with unanswered(notebook):
        restart(notebook)
    expect(notebook.chip).to_be_hidden()
    notebook.ask(LOAD)
    expect(notebook.chip).to_be_visible()
    expect(notebook.said).to_have_text("")
    notebook.row(2).click()
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("cuda:0 = GPU 2")
    # A page that is opened later has it at once. JupyterLab asks for widgets then, and there are none.
    notebook.save()
    lab.harmless.append(NO_COMM)
    second = lab.open_file(notebook.page.evaluate("notebook.context.path"), app=app)
    expect(second.chip).to_contain_text("GPU 2")
    second.chip.click()
    second.row(1).click()
    expect(second.line).to_have_text("%gpus 2,1")
