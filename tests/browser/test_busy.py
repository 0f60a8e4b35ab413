"""A cell that runs: figures go on, and a click waits for the kernel, whichever ipykernel it is."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.panel import LOAD, MASK, busy_machine, open_panel
from tests.browser.test_waiting import held_gpu
from tests.claims.holders import end

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.browser.lab import Lab

VERSIONS = ["6.30.1", "7.3.0", "7.4.0"]
WAIT = "import time, pathlib\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.05)"
AWAIT = WAIT.replace("import time,", "import asyncio,").replace("time.sleep", "await asyncio.sleep")


@pytest.fixture(params=VERSIONS)
def kernel(request: pytest.FixtureRequest, lab: Lab, ipykernel: Callable[[str], str]) -> str:
    (lab.root / "go").unlink(missing_ok=True)
    return lab.add_kernel(f"ipykernel-{request.param}", ipykernel(request.param))


@pytest.mark.parametrize("cell", [WAIT, AWAIT], ids=["sleeping", "awaiting"])
def test_a_click_during_a_cell_is_applied_after_it(lab: Lab, kernel: str, cell: str) -> None:
    notebook = open_panel(lab, kernel=kernel)
    version = kernel.removeprefix("ipykernel-")
    assert notebook.ask("import ipykernel; print(ipykernel.__version__)") == version
    running = notebook.add(f"{cell}\n{MASK}")
    after = notebook.add(MASK)
    notebook.start(running)
    lab.change_machine(busy_machine(util=63))
    expect(notebook.row(0).locator(".gm-percent")).to_have_text("63 %")
    notebook.row(3).click()
    notebook.row(1).click()
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("applies when the kernel is free")
    lab.change_machine(busy_machine(util=36))
    expect(notebook.row(0).locator(".gm-percent")).to_have_text("36 %")
    expect(notebook.said).to_contain_text("applies when the kernel is free")
    (lab.root / "go").touch()
    expect(notebook.said).to_have_text(re.compile("cuda:0 = GPU 3 .*\ncuda:1 = GPU 1 "))
    notebook.page.evaluate("window.running")
    assert notebook.outputs(running).strip() == "None"  # not while it ran
    notebook.run(after)
    assert notebook.outputs(after).strip() == "3,1"
    assert notebook.badges() == {"1": "cuda:1", "3": "cuda:0"}


def test_what_is_clicked_after_a_choice_stays_clicked(lab: Lab, kernel: str) -> None:
    notebook = open_panel(lab, kernel=kernel)
    notebook.start(notebook.add(WAIT))
    notebook.row(1).click()
    notebook.button("Use these").click()
    notebook.row(3).click()
    (lab.root / "go").touch()
    notebook.page.evaluate("window.running")
    expect(notebook.row(1).locator(".gm-applied")).to_have_text("cuda:0")
    expect(notebook.line).to_have_text("%gpus 1,3")
    assert notebook.ask(MASK) == "1"


def test_it_is_applied_before_a_cell_that_waits_its_turn(lab: Lab, kernel: str) -> None:
    notebook = open_panel(lab, kernel=kernel)
    first, second = notebook.add(WAIT), notebook.add(MASK)
    notebook.start(first)
    notebook.row(2).click()
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("applies when the kernel is free")
    notebook.start(second)
    (lab.root / "go").touch()
    notebook.page.evaluate("window.running")
    assert notebook.outputs(second).strip() == "2"


def test_cells_that_were_queued_before_the_click(lab: Lab, kernel: str) -> None:
    """Where clicks stand in line with cells, those that stand before it are run before it."""
    notebook = open_panel(lab, kernel=kernel)
    first, second, third = notebook.add(WAIT), notebook.add(MASK), notebook.add(MASK)
    notebook.start(first)
    notebook.start(second)
    notebook.row(2).click()
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("applies when the kernel is free")
    (lab.root / "go").touch()
    notebook.page.evaluate("window.running")
    if kernel == "ipykernel-7.3.0":  # clicks have a thread of their own; in 6.30 none, in 7.4 it depends
        assert notebook.outputs(second).strip() == "2"
    notebook.run(third)
    assert notebook.outputs(third).strip() == "2"


def test_an_interrupt_leaves_the_panel_alive(lab: Lab, kernel: str) -> None:
    notebook = open_panel(lab, kernel=kernel)
    notebook.start(notebook.add(WAIT))
    notebook.row(2).click()
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("applies when the kernel is free")
    lab.request(f"api/kernels/{notebook.kernel()}/interrupt", "POST")
    expect(notebook.said).to_contain_text("cuda:0 = GPU 2")
    lab.change_machine(busy_machine(util=51))
    expect(notebook.row(0).locator(".gm-percent")).to_have_text("51 %")


def test_choices_are_made_on_the_main_thread(lab: Lab, kernel: str) -> None:
    notebook = open_panel(
        lab,
        "import threading, sys\nseen = []\n"
        "def hear(event, arguments):\n"
        "    if event == 'os.putenv' and arguments[0] == b'CUDA_VISIBLE_DEVICES':\n"
        "        seen.append(threading.current_thread() is threading.main_thread())\n"
        "sys.addaudithook(hear)",
        kernel=kernel,
    )
    notebook.row(1).click()
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("cuda:0 = GPU 1")
    assert json.loads(notebook.ask("import json; print(json.dumps(seen))")) == [True]


def test_a_panel_right_behind_the_extension(lab: Lab, kernel: str) -> None:
    notebook = lab.open(f"{LOAD}\n%gpu_panel", kernel=kernel)
    notebook.run(0)
    lab.change_machine(busy_machine(util=77))
    expect(notebook.row(0).locator(".gm-percent")).to_have_text("77 %")


def test_a_wait_that_is_asked_for_during_a_cell_chooses_after_it(lab: Lab, kernel: str) -> None:
    with held_gpu(lab, kernel=kernel) as (notebook, pid):
        running = notebook.add(f"{WAIT}\n{MASK}")
        notebook.start(running)
        notebook.row(3).click()
        notebook.button("Wait for it").click()
        waits = re.compile("waits as soon as the kernel is free|Waiting for GPU 3, .*claimed by")
        expect(notebook.panel).to_contain_text(waits)
        end(pid)
        expect(notebook.row(3)).to_contain_text("free")
        (lab.root / "go").touch()
        expect(notebook.said).to_contain_text("cuda:0 = GPU 3")
        notebook.page.evaluate("window.running")
        assert notebook.outputs(running).strip() == "None"  # not while it ran
        assert notebook.ask(MASK) == "3"
