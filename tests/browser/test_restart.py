"""Too late: the panel says so, restarts the kernel, and the choice is there again."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.browser.lab import NO_COMM
from tests.browser.panel import (
    APPS,
    LOAD,
    MASK,
    open_again,
    open_panel,
    opens_again,
    restart,
    restart_and_use,
    unanswered,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.browser.lab import Lab, Notebook

START_CUDA = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"
APPLIED = "Applied the choice from before the restart:\ncuda:0 = GPU 3 (NVIDIA A100-SXM4-80GB, 79 GiB free)"
POSTS = "**/api/kernels/*/restart*"


def frozen_panel(lab: Lab, *more: str, **how: Any) -> Notebook:
    """Open a panel of a process that keeps GPU 1, in which GPU 3 alone is clicked."""
    notebook = open_panel(lab, "%gpus 1", START_CUDA, *more, **how)
    expect(notebook.cuda).to_have_text("CUDA started")
    notebook.row(1).click()
    notebook.row(3).click()
    return notebook


def saved(lab: Lab) -> list[Path]:
    return list((lab.root.parent / "runtime" / "gpu_magic").glob("*.json"))


def posts_of(*notebooks: Notebook) -> list[str]:
    """Return the restarts that pages ask the server for, from now on."""
    posts: list[str] = []
    for one in notebooks:
        one.page.on("request", lambda request: "/restart" in request.url and posts.append(request.url))
    return posts


def is_alive(notebook: Notebook, line: str) -> None:
    """Expect a panel that says nothing of a restart, and takes clicks; in place, not as another panel."""
    expect(notebook.cuda).to_have_text("CUDA not started")
    expect(notebook.said).to_have_text("")
    expect(notebook.line).to_have_text(line)
    notebook.row(0).click()
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("cuda:")
    notebook.button("Reset").click()
    notebook.button("Use as started").click()
    expect(notebook.line).to_have_text("%gpus")
    expect(notebook.page.locator(".gm-panel")).to_have_count(1)


@APPS
def test_a_frozen_kernel_is_restarted_and_has_the_choice(lab: Lab, app: str) -> None:
    notebook = frozen_panel(lab, app=app)
    banner = notebook.panel.locator(".gm-banner").first
    expect(banner).to_contain_text("CUDA started in cell [3]. This kernel keeps GPU 1 (cuda:0).")
    notebook.button("Restart kernel and use these").click()
    expect(notebook.page.get_by_role("alertdialog")).to_contain_text("Its variables are lost.")
    notebook.picture(f"{app}-frozen")
    notebook.button("Cancel").click()
    assert saved(lab) == []
    kernel = notebook.kernel()
    with notebook.page.expect_response(re.compile(f"api/kernels/{kernel}/restart")) as answer:
        restart_and_use(notebook)
    assert answer.value.ok
    expect(notebook.said).to_have_text(
        "The kernel was restarted. Run %load_ext gpu_magic to apply the saved choice and continue this panel."
    )
    assert notebook.kernel() == kernel
    assert notebook.page.locator(".jp-Dialog").count() == 0
    assert json.loads(saved(lab)[0].read_text())["request"].startswith("GPU-3a000000-")
    assert notebook.ask(MASK) == "None"
    expect(notebook.cuda).to_have_text("restarted")
    assert notebook.ask(LOAD) == APPLIED
    assert notebook.ask(MASK) == "3"
    assert saved(lab) == []
    is_alive(notebook, "%gpus 3")
    # Once: after another restart, by the menu, it is as it was started; and a panel comes alive as often as one likes,
    # also where a request was never answered.
    expect(notebook.open(1)).to_contain_text("of 400 W")
    with unanswered(notebook):
        restart(notebook)
    assert notebook.ask(LOAD) == ""
    expect(notebook.detail(1)).to_have_count(0)
    is_alive(notebook, "%gpus")
    # It is still the one of its cell.
    notebook.row(2).click()
    notebook.button("insert cell").click()
    assert notebook.sources()[3:5] == ["%gpu_panel", "%gpus 2"]


def test_where_the_page_has_no_server_to_ask_the_kernel_does_it(lab: Lab) -> None:
    notebook = frozen_panel(lab)
    lab.harmless.append("console: Failed to load resource: net::ERR_FAILED")
    notebook.page.route(POSTS, lambda route: route.abort())
    restart_and_use(notebook)
    dialog = notebook.page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("appears to have died")  # JupyterLab's, as facts go
    dialog.get_by_role("button", name="Ok").click()
    assert notebook.ask(LOAD) == APPLIED


@pytest.mark.nightly
def test_a_slow_server_is_waited_for(lab: Lab) -> None:
    notebook = frozen_panel(lab)
    posts = posts_of(notebook)

    def slow(route: Any) -> None:
        notebook.page.wait_for_timeout(5000)  # longer than a page has to say that it can
        route.continue_()

    notebook.page.route(POSTS, slow)
    restart_and_use(notebook)
    expect(notebook.said).to_contain_text("The kernel was restarted")
    assert len(posts) == 1
    assert notebook.page.locator(".jp-Dialog").count() == 0
    assert notebook.ask(LOAD) == APPLIED


@opens_again
def test_all_panels_and_pages_learn_of_it_one_of_them_does_it_and_all_come_alive(lab: Lab) -> None:
    lab.harmless.append(NO_COMM)
    notebook = frozen_panel(lab, "%gpu_panel")
    notebook.save()
    second = open_again(lab, notebook.page.evaluate("notebook.context.path"), panels=2)
    posts = posts_of(notebook, second)
    restart_and_use(notebook)
    panels = [one.page.locator(".gm-panel").nth(number) for one in (notebook, second) for number in range(2)]
    for panel in panels:
        expect(panel.locator(".gm-said")).to_contain_text("The kernel was restarted")
    assert len(posts) == 1
    assert second.ask(LOAD) == APPLIED
    for panel in panels:
        expect(panel.locator(".gm-state")).to_have_text("CUDA not started")
    notebook.row(2).click()
    notebook.button("Use these").click()
    for panel in panels:
        expect(panel.locator(".gm-line code")).to_have_text("%gpus 3,2")


def test_typing_does_the_same(lab: Lab) -> None:
    notebook = lab.open(LOAD, "%gpus 1", START_CUDA, "%gpus 3 --restart")
    for cell in range(3):
        notebook.run(cell)
    posts = posts_of(notebook)
    with notebook.page.expect_response(re.compile("api/kernels/.*/restart")) as answer:
        notebook.start(3)
    assert answer.value.ok
    assert notebook.ask(LOAD) == APPLIED
    assert notebook.page.locator(".jp-Dialog").count() == 0
    assert notebook.outputs(3).strip() == "Restarting the kernel. The next %load_ext gpu_magic chooses GPU 3."
    assert "Traceback" not in notebook.page.locator(".jp-OutputArea").nth(3).inner_text()
    # What the cell has left in the notebook restarts nothing when it is shown again.
    notebook.page.evaluate("notebook.content.activeCellIndex = 3")
    notebook.page.evaluate("jupyterapp.commands.execute('notebook:create-output-view')")
    notebook.page.evaluate("jupyterapp.commands.execute('notebook:move-cell-up')")
    assert notebook.ask("%gpus 2,0 --restart").startswith("cuda:0 = GPU 2")  # nothing has started: no need to
    assert notebook.ask(MASK) == "2,0"
    assert len(posts) == 1


@pytest.mark.nightly
@pytest.mark.timeout(600)  # may install an older ipykernel first
@pytest.mark.parametrize("version", ["6.30.1", "7.3.0", "7.4.0"])
def test_an_old_panel_comes_alive_whichever_ipykernel_it_is(
    lab: Lab, ipykernel: Callable[[str], str], version: str
) -> None:
    notebook = open_panel(lab, kernel=lab.add_kernel(f"ipykernel-{version}", ipykernel(version)))
    restart(notebook)
    notebook.ask(LOAD)
    is_alive(notebook, "%gpus")
