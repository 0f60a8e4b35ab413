"""A cell that runs: figures go on, and a click waits for the kernel, whichever ipykernel it is."""

from __future__ import annotations

import json
import re
import time
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

import psutil
import pytest
import websocket
from playwright.sync_api import expect

from tests.browser.lab import FLAGS, TOKEN, find_chromium
from tests.browser.panel import LOAD, MASK, VERSIONS, busy_machine
from tests.browser.test_chip import open_chip
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.browser.lab import Lab, Notebook

WAIT = "import time, pathlib\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.05)"
AWAIT = WAIT.replace("import time,", "import asyncio,").replace("time.sleep", "await asyncio.sleep")
HEAR = """
import sys, threading
seen = set()
def hear(event, arguments):
    if event == 'os.putenv' and arguments[0] == b'CUDA_VISIBLE_DEVICES':
        seen.add(threading.current_thread() is threading.main_thread())
sys.addaudithook(hear)
"""
LATER = "applies when the kernel is free"

pytestmark = [pytest.mark.timeout(600), pytest.mark.parametrize("version", VERSIONS)]  # may install one first


def kernel_of(lab: Lab, ipykernel: Callable[[str], str], version: str) -> str:
    (lab.root / "go").unlink(missing_ok=True)
    return lab.add_kernel(f"ipykernel-{version}", ipykernel(version)) if version else "python3"


def choose(notebook: Notebook, *rows: int) -> None:
    for row in rows:
        notebook.row(row).click()
    notebook.button("Use these").click()


def end_cell(lab: Lab, notebook: Notebook) -> None:
    (lab.root / "go").touch()
    notebook.page.evaluate("window.running")
    (lab.root / "go").unlink()


def test_a_click_during_a_cell_is_applied_after_it(
    lab: Lab, ipykernel: Callable[[str], str], version: str
) -> None:
    notebook = lab.open(f"{LOAD}\n%gpu_panel", HEAR, kernel=kernel_of(lab, ipykernel, version))
    notebook.run(0)  # a panel right behind the extension
    notebook.run(1)
    if version:
        assert notebook.ask("import ipykernel; print(ipykernel.__version__)") == version
    for util, cell, mask in ((63, WAIT, "None"), (36, AWAIT, "3")):
        running = notebook.add(f"{cell}\n{MASK}")
        notebook.start(running)
        lab.change_machine(busy_machine(util=util))
        expect(notebook.row(0).locator(".gm-percent")).to_have_text(f"{util} %")
        choose(notebook, *((3,) if mask == "None" else (1,)))
        expect(notebook.said).to_contain_text(LATER)
        lab.change_machine(busy_machine(util=util + 1))
        expect(notebook.row(0).locator(".gm-percent")).to_have_text(f"{util + 1} %")
        expect(notebook.said).to_contain_text(LATER)
        notebook.row(2).click()  # after the choice: it stays clicked
        end_cell(lab, notebook)
        assert notebook.outputs(running).strip() == mask  # not while it ran
        expect(notebook.row(3).locator(".gm-applied")).to_have_text("cuda:0")
        expect(notebook.panel.locator(".gm-hint")).to_have_text("not applied yet")
        notebook.button("clear").click()
    assert notebook.ask(MASK) == "3,1"
    # An interrupt leaves it alive, and its choice is made.
    notebook.start(notebook.add(WAIT))
    choose(notebook, 2)
    expect(notebook.said).to_contain_text(LATER)
    lab.request(f"api/kernels/{notebook.kernel()}/interrupt", "POST")
    expect(notebook.said).to_contain_text("cuda:2 = GPU 2")
    lab.change_machine(busy_machine(util=51))
    expect(notebook.row(0).locator(".gm-percent")).to_have_text("51 %")
    assert notebook.ask("print(seen)") == "{True}"  # all of it on the main thread


def test_a_click_is_applied_before_a_cell_that_waits_its_turn(
    lab: Lab, ipykernel: Callable[[str], str], version: str
) -> None:
    """By the chip's panel, whose messages come by a comm of its own. What stood in line before it may run before it."""
    notebook = open_chip(lab, kernel=kernel_of(lab, ipykernel, version))
    notebook.chip.click()
    expect(notebook.panel).to_be_visible()
    first, second, third = (notebook.add(cell) for cell in (WAIT, MASK, MASK))
    notebook.start(first)
    choose(notebook, 2)
    expect(notebook.said).to_contain_text(LATER)
    notebook.start(second)
    end_cell(lab, notebook)
    assert notebook.outputs(second).strip() == "2"
    notebook.start(first)
    notebook.start(second)
    choose(notebook, 3)
    expect(notebook.said).to_contain_text(LATER)
    end_cell(lab, notebook)
    if version == "7.3.0":  # clicks have a thread of their own; in 6.30 none, in 7.4 it depends
        assert notebook.outputs(second).strip() == "2,3"
    notebook.run(third)
    assert notebook.outputs(third).strip() == "2,3"
    expect(notebook.said).to_have_text(re.compile("cuda:0 = GPU 2 .*\ncuda:1 = GPU 3 "))


@contextmanager
def browser_to_kill(lab: Lab) -> Iterator[Callable[[], None]]:
    """Open pages in a Chromium of their own meanwhile; return what kills it."""
    shared, before = lab.browser, set(psutil.Process().children(recursive=True))
    lab.browser = shared.browser_type.launch(executable_path=find_chromium(), args=FLAGS)
    processes = set(psutil.Process().children(recursive=True)) - before

    def kill() -> None:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    try:
        yield kill
    finally:
        lab.browser = shared
        kill()


def states_kept(lab: Lab, kernel: str, session: str) -> int:
    """Return how many states the server has kept for a page that has gone, and gets within seconds."""
    address = f"{lab.address.replace('http', 'ws')}/api/kernels/{kernel}/channels"
    count, end = 0, time.monotonic() + 5
    with closing(websocket.create_connection(f"{address}?session_id={session}&token={TOKEN}")) as channel:
        while (left := end - time.monotonic()) > 0:
            channel.settimeout(left)
            with suppress(websocket.WebSocketTimeoutException):
                message = json.loads(channel.recv())
                data = message["content"].get("data", {})
                count += data.get("content", data).get("type") in ("state", "same")
    return count


def test_a_page_that_is_killed_leaves_little_with_the_server(
    lab: Lab, ipykernel: Callable[[str], str], version: str
) -> None:
    """The server keeps what is sent to it for ever, and a cell can take days."""
    with browser_to_kill(lab) as kill:
        notebook = lab.open(
            LOAD, "%gpu_panel", WAIT, kernel=kernel_of(lab, ipykernel, version), own_page=True
        )
        notebook.run(0)
        notebook.run(1)
        expect(notebook.panel).to_be_visible()
        kernel = notebook.kernel()
        session = notebook.page.evaluate("notebook.sessionContext.session.kernel.clientId")
        notebook.start(2)
        lab.change_machine(busy_machine(util=63))
        expect(notebook.row(0).locator(".gm-percent")).to_have_text("63 %")
        lab.contexts.remove(notebook.page.context)
        kill()
    kept = states_kept(lab, kernel, session)
    assert kept > 0
    until(lambda: states_kept(lab, kernel, session) == 0)
