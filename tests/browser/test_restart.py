"""Too late: the panel says so, restarts the kernel, and the choice is there again."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.browser.panel import (
    LOAD,
    MASK,
    open_again,
    open_panel,
    opens_again,
    picture,
    restart,
    restart_and_use,
    unanswered,
)
from tests.browser.test_busy import VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.browser.lab import Lab, Notebook

START_CUDA = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"
APPLIED = "As chosen before the restart:\ncuda:0 = GPU 3 (NVIDIA A100-SXM4-80GB, 79 GiB free)"


def frozen_panel(lab: Lab, *more: str, **how: str) -> Notebook:
    """Open a panel of a process that keeps GPU 1."""
    notebook = open_panel(lab, "%gpus 1", START_CUDA, *more, **how)
    expect(notebook.panel.locator(".gm-state")).to_have_text("CUDA started")
    return notebook


def saved(lab: Lab) -> list[Path]:
    return list((lab.root.parent / "runtime" / "gpu_magic").glob("*.json"))


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_a_frozen_kernel_is_restarted_and_has_the_choice(lab: Lab, app: str) -> None:
    notebook = frozen_panel(lab, app=app)
    banner = notebook.panel.locator(".gm-banner").first
    expect(banner).to_contain_text("CUDA was initialized in cell [3]; this process keeps GPU 1 (cuda:0).")
    assert notebook.badges() == {"1": "cuda:0"}
    notebook.row(1).click()
    notebook.row(3).click()
    expect(notebook.panel.get_by_role("button", name="Use these", exact=True)).to_have_count(0)
    notebook.button("Restart kernel and use these").click()
    expect(notebook.page.get_by_role("alertdialog")).to_contain_text("Its variables are lost.")
    picture(notebook, f"{app}-frozen")
    notebook.button("Cancel").click()
    expect(notebook.page.get_by_role("alertdialog")).to_be_hidden()
    assert saved(lab) == []
    kernel = notebook.kernel()
    with notebook.page.expect_response(re.compile(f"api/kernels/{kernel}/restart")) as answer:
        restart_and_use(notebook)
    assert answer.value.ok
    expect(notebook.said).to_have_text(
        "The kernel was restarted: run %load_ext gpu_magic, which applies a choice that was made for it. "
        "After that, this panel goes on."
    )
    assert notebook.kernel() == kernel
    assert notebook.page.locator(".jp-Dialog").count() == 0
    assert json.loads(saved(lab)[0].read_text())["request"].startswith("GPU-3a000000-")
    assert notebook.ask(MASK) == "None"
    assert notebook.ask(LOAD) == APPLIED
    assert notebook.ask(MASK) == "3"
    assert saved(lab) == []
    # Once: after another restart it is as it was started.
    restart(notebook)
    assert notebook.ask(LOAD) == ""
    assert notebook.ask(MASK) == "None"


def test_what_it_has_needs_no_restart(lab: Lab) -> None:
    notebook = frozen_panel(lab)
    notebook.row(3).click()
    expect(notebook.button("Restart kernel and use these")).to_be_visible()
    notebook.row(3).click()
    expect(notebook.line).to_have_text("%gpus 1")
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("cuda:0 = GPU 1")


def test_escape_is_no(lab: Lab) -> None:
    notebook = frozen_panel(lab)
    notebook.row(3).click()
    notebook.button("Restart kernel and use these").press("Enter")
    expect(notebook.button("Cancel")).to_be_focused()
    notebook.page.keyboard.press("Escape")
    expect(notebook.button("Restart kernel and use these")).to_be_focused()
    assert saved(lab) == []


def test_where_the_page_has_no_server_to_ask_the_kernel_does_it(lab: Lab) -> None:
    notebook = frozen_panel(lab)
    lab.harmless += ["Failed to load resource"]
    notebook.page.route("**/api/kernels/*/restart*", lambda route: route.abort())
    notebook.row(1).click()
    notebook.row(3).click()
    restart_and_use(notebook)
    dialog = notebook.page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("appears to have died")  # JupyterLab's, as facts go
    dialog.get_by_role("button", name="Ok").click()
    assert notebook.ask(LOAD) == APPLIED


@opens_again
def test_all_panels_and_pages_learn_of_it_and_one_of_them_does_it(lab: Lab) -> None:
    notebook = frozen_panel(lab, "%gpu_panel")
    notebook.save()
    second = open_again(lab, notebook.page.evaluate("notebook.context.path"), panels=2)
    posts: list[str] = []
    for one in (notebook, second):
        one.page.on(
            "request", lambda request: posts.append(request.url) if "/restart" in request.url else None
        )
    notebook.row(1).click()
    notebook.row(3).click()
    restart_and_use(notebook)
    for one in (notebook, second):
        for number in range(2):
            said = one.page.locator(".gm-panel").nth(number).locator(".gm-said")
            expect(said).to_contain_text("The kernel was restarted")
    assert len(posts) == 1
    assert second.ask(LOAD) == APPLIED


def test_the_question_is_about_what_was_clicked_when_it_was_asked(lab: Lab) -> None:
    notebook = frozen_panel(lab, "%gpu_panel")
    panels = notebook.page.locator(".gm-panel")
    panels.nth(0).locator('[data-key="3"]').click()
    panels.nth(0).get_by_role("button", name="Restart kernel and use these").click()
    question = panels.nth(0).get_by_role("alertdialog")
    expect(question).to_contain_text("Restart the kernel for %gpus 1,3? Its variables are lost.")
    panels.nth(1).locator('[data-key="0"]').click()
    expect(question).to_be_hidden()
    assert saved(lab) == []


def test_a_slow_server_is_waited_for(lab: Lab) -> None:
    notebook = frozen_panel(lab)
    posts: list[str] = []

    def slow(route: Any) -> None:
        posts.append(route.request.url)
        notebook.page.wait_for_timeout(5000)  # longer than a page has to say that it can
        route.continue_()

    notebook.page.route("**/api/kernels/*/restart*", slow)
    notebook.row(1).click()
    notebook.row(3).click()
    restart_and_use(notebook)
    expect(notebook.said).to_contain_text("The kernel was restarted")
    assert len(posts) == 1
    assert notebook.page.locator(".jp-Dialog").count() == 0
    assert notebook.ask(LOAD) == APPLIED


def test_an_open_panel_learns_of_a_restart_that_is_typed(lab: Lab) -> None:
    notebook = frozen_panel(lab)
    notebook.start(notebook.add("%gpus 3 --restart"))
    expect(notebook.said).to_contain_text("The kernel was restarted")
    expect(notebook.panel.locator(".gm-state")).to_have_text("restarted")
    assert notebook.ask(LOAD) == APPLIED


def test_typing_does_the_same(lab: Lab) -> None:
    notebook = lab.open(LOAD, "%gpus 1", START_CUDA, "%gpus 3 --restart")
    for cell in range(3):
        notebook.run(cell)
    with notebook.page.expect_response(re.compile("api/kernels/.*/restart")) as answer:
        notebook.start(3)
    assert answer.value.ok
    notebook.page.wait_for_timeout(1500)
    assert notebook.page.locator(".jp-Dialog").count() == 0
    assert notebook.outputs(3).strip() == "Restarting the kernel; the next %load_ext gpu_magic chooses GPU 3."
    assert "Traceback" not in notebook.page.locator(".jp-OutputArea").nth(3).inner_text()
    assert notebook.ask(LOAD) == APPLIED
    # What the cell has left in the notebook restarts nothing when it is shown again.
    posts: list[str] = []
    notebook.page.on(
        "request", lambda request: posts.append(request.url) if "/restart" in request.url else None
    )
    notebook.page.evaluate("notebook.content.activeCellIndex = 3")
    notebook.page.evaluate("jupyterapp.commands.execute('notebook:create-output-view')")
    notebook.page.evaluate("jupyterapp.commands.execute('notebook:move-cell-up')")
    notebook.page.wait_for_timeout(1000)
    assert posts == []
    assert notebook.ask("%gpus 2,0 --restart").startswith("cuda:0 = GPU 2")  # nothing has started: no need to
    assert notebook.ask(MASK) == "2,0"


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_an_old_panel_comes_alive_after_a_restart(lab: Lab, app: str) -> None:
    notebook = frozen_panel(lab, app=app)
    notebook.row(1).click()
    notebook.row(3).click()
    restart_and_use(notebook)
    expect(notebook.said).to_contain_text("The kernel was restarted")
    assert notebook.ask("1 + 1") == "2"
    expect(notebook.panel.locator(".gm-state")).to_have_text("restarted")
    assert notebook.ask(LOAD) == APPLIED
    is_alive(notebook, "%gpus 3")
    # As often as one likes; and in place, not as another panel.
    restart(notebook)
    notebook.ask(LOAD)
    is_alive(notebook, "%gpus")
    assert notebook.page.locator(".gm-panel").count() == 1


@pytest.mark.timeout(600)  # may install an older ipykernel first
@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_panel_comes_alive_whichever_ipykernel_it_is(
    lab: Lab, ipykernel: Callable[[str], str], version: str
) -> None:
    notebook = open_panel(lab, kernel=lab.add_kernel(f"ipykernel-{version}", ipykernel(version)))
    restart(notebook)
    notebook.ask(LOAD)
    is_alive(notebook, "%gpus")
    expect(notebook.page.locator(".gm-panel")).to_have_count(1)


@opens_again
def test_all_old_panels_of_all_pages_come_alive(lab: Lab) -> None:
    lab.harmless.append(
        "Comm not found"
    )  # JupyterLab's own: a page asks for widgets, and the new kernel has none
    notebook = open_panel(lab, "%gpu_panel")
    notebook.save()
    second = open_again(lab, notebook.page.evaluate("notebook.context.path"), panels=2)
    restart(notebook)
    notebook.ask(LOAD)
    for one in (notebook, second):
        for number in range(2):
            expect(one.page.locator(".gm-panel").nth(number).locator(".gm-state")).to_have_text(
                "CUDA not started"
            )
    notebook.row(2).click()
    notebook.button("Use these").click()
    for one in (notebook, second):
        for number in range(2):
            expect(one.page.locator(".gm-line code").nth(number)).to_have_text("%gpus 2")


def test_an_old_panel_comes_alive_though_a_request_was_never_answered(lab: Lab) -> None:
    notebook = open_panel(lab)
    with unanswered(notebook):
        restart(notebook)
    notebook.ask(LOAD)
    is_alive(notebook, "%gpus")


def test_a_panel_whose_kernel_was_replaced_goes_on_in_the_new_one(lab: Lab) -> None:
    notebook = open_panel(lab)
    notebook.page.evaluate("notebook.sessionContext.changeKernel({name: 'python3'})")
    expect(notebook.said).to_contain_text("The kernel of this panel has gone")
    notebook.ask(LOAD)
    is_alive(notebook, "%gpus")


def test_an_old_panel_is_still_the_one_of_its_cell(lab: Lab) -> None:
    notebook = open_panel(lab)
    restart(notebook)
    notebook.ask(LOAD)
    is_alive(notebook, "%gpus")
    notebook.row(2).click()
    notebook.button("insert cell").click()
    assert notebook.sources()[:3] == [LOAD, "%gpu_panel", "%gpus 2"]


def is_alive(notebook: Notebook, line: str) -> None:
    """Expect a panel that says nothing of a restart, and takes clicks."""
    expect(notebook.panel.locator(".gm-state")).to_have_text("CUDA not started")
    expect(notebook.said).to_have_text("")
    expect(notebook.line).to_have_text(line)
    notebook.row(0).click()
    expect(notebook.panel.locator(".gm-hint")).to_have_text("not applied yet")
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("cuda:")
    notebook.button("Reset").click()
    notebook.button("Use as started").click()
    expect(notebook.line).to_have_text("%gpus")
