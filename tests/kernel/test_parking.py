"""A kernel that parks its variables by itself, and brings them back before the next cell."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gpu_magic.claims.held import Claims
from tests.conftest import LIMIT, needs_ipykernel
from tests.kernel.test_background import HERE, VERSIONS
from tests.kernel.test_panel import Page
from tests.machine import CARDS, GIB, Driver
from tests.processes import sees_processes, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernel.conftest import Kernel

# Looks are 0.2 s apart in tests.
SOON, NEVER = "%config GpuMagics.park_after = '1s'", "%config GpuMagics.park_after = None"
MAKE = "import torch\nx = torch.ones(1 << 20, device='pretend')"
BACK = "Variables were parked while this kernel was idle. Back: 4.0 MiB on pretend:0.\n"
UUID = CARDS[1].uuid
THREADS = "import threading; print(sum(one.name == 'gpu_magic-park' for one in threading.enumerate()))"


def is_parked() -> bool:
    return any(claim.is_parked for claim in Claims().everybodys().get(UUID, ()))


def asked(kernel: Kernel) -> str:
    """Open the comm of the server; return its number."""
    client, key = kernel.client, f"park-{time.monotonic_ns()}"
    opened = {"comm_id": key, "target_name": "gpu_magic.park", "data": {}}
    client.session.send(client.shell_channel.socket, client.session.msg("comm_open", opened))
    return key


def answer(kernel: Kernel, key: str) -> dict[str, Any]:
    """Return what the kernel answers through the comm, which it closes then."""
    found: dict[str, Any] = {}
    while True:
        message = kernel.client.get_iopub_msg(timeout=LIMIT)
        if message["content"].get("comm_id") == key:
            if message["msg_type"] == "comm_close":
                return found
            found = message["content"]["data"]


@pytest.fixture
def idle(pretend_kernel: Kernel) -> Kernel:
    """Return a kernel that has claimed GPU 1, and has an array on an accelerator."""
    pretend_kernel.run(f"%gpus 1\n{MAKE}")
    return pretend_kernel


@pytest.mark.parametrize("version", VERSIONS)
def test_an_idle_kernel_parks_and_comes_back_before_the_next_cell(
    start_kernel: Callable[..., Kernel],
    ipykernel: Callable[[str], str],
    pretend: dict[str, str],
    version: str,
) -> None:
    paths = "" if version == HERE else f"{ipykernel(version)}:"
    variables = pretend | {"PYTHONPATH": f"{paths}{pretend['PYTHONPATH']}"}
    idle = start_kernel(imported=("torch", "torch._dynamo"), **variables).load()
    assert idle.run(f"%gpus 1\n{MAKE}\nimport ipykernel; ipykernel.__version__").text.endswith(f"'{version}'")
    assert idle.run("x.device.type").text == "'pretend'"
    idle.run(SOON)
    until(is_parked)
    idle.client.execute_interactive("assert x.device.type == 'cpu'", silent=True)  # hidden, as an editor's
    assert is_parked()
    reply = idle.run("print(x.device)")
    assert reply.said == f"{BACK}pretend:0\n"
    assert not is_parked()
    until(is_parked)  # again
    idle.run(NEVER)
    assert idle.run("print(x.device)").stdout == "pretend:0\n"


def test_it_is_off_by_default_and_never_in_a_cell(idle: Kernel) -> None:
    reply = idle.run(f"{SOON}\nimport asyncio\nawait asyncio.sleep(2)\nprint(x.device)")
    assert reply.stdout == "pretend:0\n"
    idle.run("import time\ntime.sleep(2)\nassert x.device.type == 'pretend'")
    until(is_parked)


def machine(*processes: tuple[int, int] | tuple[int, int, int], util: int = 0) -> Driver:
    """Return the machine with processes on GPU 1: a number, its memory, and how busy it keeps the GPU."""
    return Driver((CARDS[0], replace(CARDS[1], util=util, processes=processes), *CARDS[2:]))


@sees_processes
def test_what_works_on_a_gpu_is_not_idle_and_a_child_that_only_has_memory_neither(idle: Kernel) -> None:
    child = int(
        idle.run("import subprocess\nprint((child := subprocess.Popen(['sleep', '600'])).pid)").stdout
    )
    works, rests = (idle.pid, GIB, 50), (idle.pid, GIB, 0)
    for busy, why in (
        (machine(works, util=50), "This kernel works on a GPU."),
        (machine(rests, (child, GIB, 0)), f"sleep (pid {child}), which this kernel has started, uses GPU 1."),
    ):
        idle.change_machine(busy)
        assert answer(idle, asked(idle)) == {"refused": why}
    # Its work is unknown, and somebody works.
    idle.change_machine(machine((idle.pid, GIB), (os.getpid(), GIB), util=50))
    assert answer(idle, asked(idle)) == {"refused": "Whether this kernel works on a GPU is unknown."}
    assert not is_parked()
    idle.run("child.kill(); child.wait()")
    idle.change_machine(machine((idle.pid, GIB, 0)))
    idle.run(SOON)
    until(is_parked)


@pytest.mark.parametrize(
    ("start", "stop"),
    [
        ("%gpu_launch --background one sleep 600", "%gpu_tasks stop one"),
        ("%%on_gpu cpu --background one\nimport time\nwhile True: time.sleep(0.01)", "%gpu_tasks stop one"),
    ],
)
def test_a_task_in_the_background_keeps_it_from_parking(idle: Kernel, start: str, stop: str) -> None:
    idle.run(SOON)
    idle.run(start)
    assert answer(idle, asked(idle))["refused"].startswith("Task one of this kernel still runs.")
    assert not is_parked()
    idle.run(stop)
    until(is_parked)


def test_engines_keep_it_from_parking(engines: Kernel) -> None:
    assert answer(engines, asked(engines)) == {"refused": "This kernel runs engines."}


def test_another_kernel_picks_its_gpu_if_none_is_free(
    idle: Kernel, start_kernel: Callable[..., Kernel]
) -> None:
    context = (idle.pid, GIB // 2, 0)
    used = [replace(card, used=40 * GIB, util=90) for card in CARDS]
    busy = Driver((used[0], replace(CARDS[1], processes=(context,)), *used[2:]))
    other = start_kernel(busy).load()
    assert answer(idle, asked(idle)) == {"parked": 4 << 20}
    chosen = other.run("%gpus auto").said
    assert chosen.startswith("cuda:0 = GPU 1 ")
    assert "\nNo GPU is free. GPU 1 is parked." in chosen
    idle.run("x")
    assert other.run("%gpus none\n%gpus auto --only-free").refusal.count("parked") == 0


def test_what_cannot_be_parked_is_told_once_in_the_next_cell(idle: Kernel) -> None:
    idle.run(
        "import threading\nend = threading.Event()\n"
        "def use(array):\n    end.wait()\n"
        "thread = threading.Thread(target=use, args=[x], name='feeder')\nthread.start()"
    )
    said = "feeder is a thread that uses these variables. Nothing was changed. End it first."
    assert answer(idle, asked(idle)) == {"refused": said}
    assert idle.run("print(x.device)").said == (
        f"This idle kernel could not park its variables: {said}\npretend:0\n"
    )
    assert idle.run("print(x.device)").stdout == "pretend:0\n"
    idle.run("end.set()")


def test_the_server_can_ask_also_where_it_is_off(idle: Kernel) -> None:
    assert answer(idle, asked(idle)) == {"parked": 4 << 20}
    assert is_parked()
    assert answer(idle, asked(idle)) == {"parked": 4 << 20}  # it is so already
    assert idle.run("print(x.device)").said == f"{BACK}pretend:0\n"
    until(lambda: idle.run(THREADS).stdout == "0\n")  # nothing looks whether it is idle again
    idle.run("%gpu_park")  # by hand: it stays so
    idle.run("print(x.device)")
    assert answer(idle, asked(idle)) == {"parked": 4 << 20}
    assert idle.run("print(x.device)").stdout == "cpu\n"
    idle.run("%gpu_unpark\ndel x")
    assert answer(idle, asked(idle)) == {"parked": 0}
    idle.run("%unload_ext gpu_magic")
    assert answer(idle, asked(idle)) == {}  # Jupyter's own answer to a name that it does not know


def test_asked_during_a_cell_it_refuses_and_the_user_s_variables_stay(idle: Kernel) -> None:
    needs_ipykernel("7", "an older one reads the request when the cell has ended")
    running = idle.client.execute(
        "import asyncio\nfor _ in range(20): await asyncio.sleep(0.1)\nassert x.is_pretend"
    )
    assert running
    assert answer(idle, asked(idle)) == {"refused": "This kernel is in use."}
    assert idle.run("print(x.device)").stdout == "pretend:0\n"


def test_an_open_row_of_the_panel_shows_it(kernel: Kernel) -> None:
    kernel.run(FULL)
    page = Page(kernel)
    page.look("watched", "v", "1")

    def parked(state: dict[str, Any]) -> str:
        variables = state["details"].get("1", {}).get("variables")
        return variables["parked"] if variables else "unknown"

    page.state(lambda state: parked(state) == "")
    asked(kernel)
    page.state(lambda state: parked(state) == "1.0 MiB")
    kernel.run("y")
    page.state(lambda state: parked(state) == "")


# Room

FULL = """
import pathlib, tempfile, threading, time
import tests.eight_gpus as gpus
context = gpus.registered(pathlib.Path(tempfile.mkdtemp()))
framework = context.__enter__()
def fill():
    while True:
        is_full = pathlib.Path("full").exists()
        framework.free = 1000 if is_full else 1 << 40
        if is_full:
            pathlib.Path("seen").touch()
        time.sleep(0.01)
threading.Thread(target=fill, daemon=True).start()
y = gpus.Array(1)
"""


@pytest.fixture
def full(kernel: Kernel) -> Kernel:
    """Return a kernel that has parked, and to whose GPU another process has brought its own arrays since."""
    kernel.run(f"%gpus 0,1\n{FULL}")
    assert answer(kernel, asked(kernel)) == {"parked": 1 << 20}
    (kernel.folder / "full").touch()
    until((kernel.folder / "seen").exists)
    return kernel


def wait_and(kernel: Kernel, cell: str, act: Callable[[], object]) -> Any:
    """Run a cell, and do something once it waits."""

    def wait() -> None:
        until(lambda: "Waiting for GPU 1, " in kernel.heard)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    reply = kernel.run(cell)
    thread.join()
    return reply


@pytest.mark.parametrize(
    "cell", ["print(y.ordinal)", "import asyncio; await asyncio.sleep(0)\nprint(y.ordinal)"]
)
def test_it_waits_for_room_and_an_interrupt_stops_the_wait_and_the_cell(full: Kernel, cell: str) -> None:
    reply = wait_and(full, cell, full.interrupt)
    assert reply.status == "error"
    assert reply.stdout == ""
    assert " ".join(reply.traceback.split()) == (
        "KeyboardInterrupt: This cell did not run. Variables are parked on the CPU: 1.0 MiB from cuda:1. "
        "To use another GPU: %gpu_unpark --device 1. To leave them on the CPU: %gpu_park"
    )
    assert is_parked()
    reply = wait_and(full, cell, (full.folder / "full").unlink)  # as the next cell does
    back = "Variables were parked while this kernel was idle. Back: 1.0 MiB on cuda:1."
    assert reply.said.endswith(f"{back}\n1\n")
    assert not is_parked()


def test_what_a_user_types_about_parking_is_done_instead(full: Kernel) -> None:
    assert "do not fit on cuda:1" in full.run("# now\n%gpu_unpark").stderr
    assert "do not fit on cuda:1" in full.run("import gpu_magic; gpu_magic.unpark()").traceback
    told = "Variables are parked on the CPU: 1.0 MiB from cuda:1. To bring them back: %gpu_unpark"
    assert full.run("%gpu_park").said == f"Nothing to park.\n{told}\n"
    next_cell = full.run("print(y.ordinal)")
    assert (next_cell.text, next_cell.stdout) == (told, "None\n")
    assert full.run("print(y.ordinal)").stdout == "None\n"
