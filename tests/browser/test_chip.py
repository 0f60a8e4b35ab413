"""The chip: there where gpu_magic is loaded, and a click opens the panel beside the notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.lab import start_lab
from tests.browser.panel import LOAD, MASK, PICTURES, busy_machine, restart, unanswered
from tests.browser.test_alive import TEN_MINUTES
from tests.browser.test_busy import VERSIONS, WAIT
from tests.browser.test_restart import START_CUDA
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.browser.lab import Lab, Notebook

APPS = ["lab", "notebook"]
COMMS = "import comm; print([one.target_name for one in comm.get_comm_manager().comms.values()])"
VIEWS = (
    "from gpu_magic.panel.state import panel_state\n"
    "print(*(len(views) for views in panel_state()._views.values()))"
)


def chip_of(notebook: Notebook) -> Any:
    return notebook.page.locator(".gm-chip")


def open_chip(lab: Lab, *cells: str, **how: Any) -> Notebook:
    """Open a notebook whose kernel has gpu_magic, and no panel."""
    notebook = lab.open(LOAD, *cells, **how)
    for cell in range(len(cells) + 1):
        notebook.run(cell)
    expect(chip_of(notebook)).to_be_visible()
    return notebook


@pytest.mark.parametrize("app", APPS)
def test_the_chip_is_there_once_gpu_magic_is_loaded(lab: Lab, app: str) -> None:
    notebook = lab.open("1 + 1", LOAD, app=app)
    notebook.run(0)
    expect(chip_of(notebook)).to_have_count(0)
    place = notebook.page.locator("[id^=gpu-magic-chip-]")
    expect(place).to_have_js_property("hidden", True)  # an empty one has a width among those of others
    notebook.run(1)
    expect(place).to_have_js_property("hidden", False)
    expect(chip_of(notebook)).to_be_visible()
    expect(chip_of(notebook)).to_have_text("all 4 GPUs · 2/320 GiBCUDA not started")


def test_the_chip_follows_the_choice_the_memory_and_cuda(lab: Lab) -> None:
    notebook = open_chip(lab, "%gpus 2,1", START_CUDA)
    expect(chip_of(notebook)).to_have_text("GPUs 2,1 · 1/160 GiBCUDA started")
    lab.change_machine(busy_machine())
    expect(chip_of(notebook)).to_have_text("GPUs 2,1 · 61/160 GiBCUDA started")


def test_a_notebook_without_gpu_magic_has_no_chip(lab: Lab) -> None:
    notebook = open_chip(lab)
    other = lab.open("1 + 1")
    other.run(0)
    expect(chip_of(other)).to_be_hidden()
    other.page.evaluate("jupyterapp.commands.execute('application:activate-previous-tab')")
    expect(chip_of(notebook)).to_be_visible()


def test_a_kernel_without_gpu_magic_is_asked_for_its_comms_and_nothing_else(lab: Lab) -> None:
    notebook = lab.open("1 + 1", "import json  # gpu_magic", own_page=True)
    notebook.page.evaluate(
        """() => {
            window.sent = [];
            notebook.sessionContext.session.kernel.anyMessage.connect((_, {msg, direction}) => {
                if (direction === 'send') sent.push(msg.header.msg_type);
            });
        }"""
    )
    notebook.run(0)
    notebook.run(1)
    notebook.page.wait_for_function("sent.includes('comm_info_request')")
    kinds = set(notebook.page.evaluate("sent"))
    assert not kinds & {"comm_open", "comm_msg"}


@pytest.mark.parametrize("app", APPS)
def test_a_click_opens_a_live_panel_beside_the_notebook(lab: Lab, app: str) -> None:
    notebook = open_chip(lab, app=app)
    chip_of(notebook).focus()
    notebook.page.keyboard.press("Enter")
    expect(notebook.panel).to_be_visible()
    chip_of(notebook).click()
    expect(notebook.page.locator(".gm-panel")).to_have_count(1)
    assert notebook.page.locator(".jp-OutputArea .gm-panel").count() == 0
    notebook.row(3).click()
    notebook.row(1).click()
    expect(notebook.line).to_have_text("%gpus 3,1")
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("cuda:0 = GPU 3")
    expect(chip_of(notebook)).to_contain_text("GPUs 3,1")
    assert notebook.ask(MASK) == "3,1"
    lab.change_machine(busy_machine(util=63))
    expect(notebook.row(0).locator(".gm-percent")).to_have_text("63 %")


def test_the_panel_beside_is_cut_off_at_no_width_of_the_window(lab: Lab) -> None:
    notebook = open_chip(lab, own_page=True)
    page = notebook.page
    page.evaluate("jupyterapp.shell.collapseLeft()")  # the file browser leaves no room
    chip_of(notebook).click()
    notebook.row(1).click()
    for width in range(280, 1201, 40):
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


def test_a_panel_beside_that_is_higher_than_the_window_is_scrolled(lab: Lab) -> None:
    notebook = open_chip(lab, own_page=True)
    chip_of(notebook).click()
    expect(notebook.panel).to_be_visible()
    notebook.page.set_viewport_size({"width": 1240, "height": 300})
    expect(notebook.button("Use these")).not_to_be_in_viewport()
    notebook.panel.hover(position={"x": 50, "y": 10})
    notebook.page.mouse.wheel(0, 2000)
    expect(notebook.button("Use these")).to_be_in_viewport()


@pytest.mark.parametrize("app", APPS)
def test_a_choice_is_written_below_the_active_cell(lab: Lab, app: str) -> None:
    notebook = open_chip(lab, "x = 1", "x = 2", app=app)
    notebook.page.evaluate("notebook.content.activeCellIndex = 1")
    chip_of(notebook).click()
    notebook.row(3).click()
    notebook.button("insert cell").click()
    expect(notebook.button("inserted")).to_be_visible()
    assert notebook.sources() == [LOAD, "x = 1", "%gpus 3", "x = 2"]
    # In place of the one before, wherever one works by now.
    notebook.page.evaluate("notebook.content.activeCellIndex = 3")
    notebook.row(1).click()
    notebook.button("insert cell").click()
    assert notebook.sources() == [LOAD, "x = 1", "%gpus 3,1", "x = 2"]


def test_a_choice_is_written_into_the_notebook_whose_chip_was_clicked(lab: Lab) -> None:
    notebook = open_chip(lab)
    notebook.page.evaluate("() => { window.first = notebook }")  # which is too deep to be returned
    chip_of(notebook).click()
    expect(notebook.panel).to_be_visible()
    other = lab.open("1 + 1")
    notebook.row(3).click()
    notebook.button("insert cell").click()
    expect(notebook.button("inserted")).to_be_visible()
    assert other.sources() == ["1 + 1"]
    notebook.page.evaluate("() => { window.notebook = first }")
    assert notebook.sources() == [LOAD, "%gpus 3"]


@pytest.mark.timeout(600)  # may install an older ipykernel first
@pytest.mark.parametrize("version", VERSIONS)
def test_choosing_beside_a_cell_that_runs(lab: Lab, ipykernel: Callable[[str], str], version: str) -> None:
    (lab.root / "go").unlink(missing_ok=True)
    notebook = open_chip(lab, kernel=lab.add_kernel(f"ipykernel-{version}", ipykernel(version)))
    chip_of(notebook).click()
    expect(notebook.panel).to_be_visible()
    notebook.start(notebook.add(f"{WAIT}\n{MASK}"))
    lab.change_machine(busy_machine(util=63))
    expect(notebook.row(0).locator(".gm-percent")).to_have_text("63 %")
    notebook.row(3).click()
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("applies when the kernel is free")
    (lab.root / "go").touch()
    expect(notebook.said).to_contain_text("cuda:0 = GPU 3")
    assert notebook.ask(MASK) == "3"


def test_the_panel_beside_and_that_of_a_cell_agree(lab: Lab) -> None:
    notebook = open_chip(lab, "%gpu_panel")
    chip_of(notebook).click()
    panels = notebook.page.locator(".gm-panel")
    expect(panels).to_have_count(2)
    panels.nth(0).locator('[data-key="1"]').click()
    panels.nth(0).get_by_role("button", name="Use these").click()
    for number in range(2):
        expect(panels.nth(number).locator(".gm-line code")).to_have_text("%gpus 1")
        expect(panels.nth(number).locator(".gm-said")).to_contain_text("cuda:0 = GPU 1")


def test_a_panel_that_is_closed_leaves_no_view(lab: Lab) -> None:
    notebook = open_chip(lab)
    chip_of(notebook).click()
    expect(notebook.panel).to_be_visible()
    until(lambda: notebook.ask(VIEWS) == "2")  # a view says that it is on screen, a moment after it is
    notebook.page.locator(".lm-TabBar-tab.lm-mod-current", has_text="GPUs").locator(
        ".lm-TabBar-tabCloseIcon"
    ).click()
    expect(notebook.panel).to_have_count(0)
    expect(chip_of(notebook)).to_be_visible()
    until(lambda: notebook.ask(VIEWS) == "1")
    chip_of(notebook).click()
    expect(notebook.panel).to_be_visible()


def test_closing_the_notebook_takes_chip_and_panel_with_it(lab: Lab) -> None:
    notebook = open_chip(lab)
    chip_of(notebook).click()
    expect(notebook.panel).to_be_visible()
    notebook.page.evaluate("notebook.context.model.dirty = false; notebook.close()")
    expect(notebook.panel).to_have_count(0)
    expect(chip_of(notebook)).to_have_count(0)


def test_it_goes_when_gpu_magic_is_unloaded_and_comes_back(lab: Lab) -> None:
    notebook = open_chip(lab)
    chip_of(notebook).click()
    expect(notebook.panel).to_be_visible()
    notebook.ask("%unload_ext gpu_magic")
    expect(chip_of(notebook)).to_be_hidden()
    expect(notebook.said).to_contain_text("gpu_magic was unloaded, so nothing can be chosen here")
    assert "gpu_magic" not in notebook.ask(COMMS)
    notebook.ask(LOAD)
    expect(chip_of(notebook)).to_be_visible()
    expect(notebook.said).to_have_text("")
    notebook.row(2).click()
    expect(notebook.line).to_have_text("%gpus 2")


def test_a_page_that_is_opened_later_has_it_at_once(lab: Lab) -> None:
    notebook = open_chip(lab)
    notebook.save()
    lab.harmless.append(
        "Comm not found"
    )  # JupyterLab's own: the second page asks for widgets, and there are none
    second = lab.open_file(notebook.page.evaluate("notebook.context.path"))
    expect(chip_of(second)).to_be_visible()
    chip_of(second).click()
    second.row(2).click()
    expect(second.line).to_have_text("%gpus 2")


@pytest.mark.parametrize("app", APPS)
def test_after_a_restart_it_is_there_once_gpu_magic_is_loaded_again(lab: Lab, app: str) -> None:
    notebook = open_chip(lab, app=app)
    chip_of(notebook).click()
    expect(notebook.panel).to_be_visible()
    restart(notebook)
    expect(chip_of(notebook)).to_be_hidden()
    notebook.ask(LOAD)
    expect(chip_of(notebook)).to_be_visible()
    expect(notebook.said).to_have_text("")
    notebook.row(2).click()
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("cuda:0 = GPU 2")


def test_it_is_there_though_a_request_was_never_answered(lab: Lab) -> None:
    notebook = lab.open("1 + 1  # gpu_magic", LOAD)
    with unanswered(notebook):
        notebook.run(0)
    notebook.run(1)
    expect(chip_of(notebook)).to_be_visible()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("app", APPS)
def test_it_can_be_read_and_reached(lab: Lab, app: str, dark: bool) -> None:
    notebook = open_chip(lab, "%gpus 2", START_CUDA, app=app, own_page=True)
    theme = "Dark" if dark else "Light"  # the server keeps the one that was chosen last
    notebook.page.evaluate(
        f"jupyterapp.commands.execute('apputils:change-theme', {{theme: 'JupyterLab {theme}'}})"
    )
    notebook.page.wait_for_selector(
        f"body[data-jp-theme-light={'false' if dark else 'true'}]", state="attached"
    )
    expect(chip_of(notebook)).to_contain_text("CUDA started")
    found = Axe().run(notebook.page, ".gm-chip").response["violations"]
    assert not found, found
    PICTURES.mkdir(parents=True, exist_ok=True)
    notebook.page.screenshot(path=PICTURES / f"{app}-chip-{'dark' if dark else 'light'}.png")


@pytest.mark.timeout(240)  # it waits 15 s in a page of its own
def test_a_server_can_end_an_idle_kernel_whose_chip_nobody_watches(tmp_path: Path, chromium: Browser) -> None:
    culler = "--MappingKernelManager.cull_"
    options = [f"{culler}idle_timeout=12", f"{culler}interval=1", f"{culler}connected=True"]
    with start_lab(tmp_path, chromium, {"GPU_MAGIC_SIMULATE": "8xA100-80GB seed=7"}, *options) as lab:
        lab.harmless.append("ChunkLoadError")  # what the page was loading has then taken too long
        notebook = lab.open(LOAD, own_page=True)
        notebook.page.clock.install()
        notebook.run(0)
        expect(chip_of(notebook)).to_contain_text("SIMULATED")
        notebook.page.wait_for_timeout(15_000)
        assert lab.request("api/kernels") != "[]"  # one that is watched is in use
        notebook.page.clock.fast_forward(TEN_MINUTES)
        expect(chip_of(notebook)).to_be_hidden()
        assert lab.request("api/kernels") == "[]"
        lab.close_pages(keep_shared=False)
