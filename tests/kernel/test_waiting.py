"""Waiting for GPUs: a line says who has them, an interrupt ends it, and other cells can run meanwhile."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.machine import CARDS, GIB, Driver
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernel.conftest import Kernel, Reply

# Somebody has memory on all four GPUs, and works on them.
BUSY = tuple(replace(card, used=40 * GIB, util=90) for card in CARDS)
FREED = (*BUSY[:2], CARDS[2], *BUSY[3:])


def run_and(kernel: Kernel, cell: str, act: Callable[[], object]) -> Reply:
    """Run a cell, and do something once it waits."""

    def wait_and_act() -> None:
        until(lambda: "Waiting for" in kernel.heard)
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    reply = kernel.run(cell)
    thread.join()
    return reply


def test_a_wait_ends_when_a_gpu_is_free(kernel: Kernel) -> None:
    kernel.change_machine(Driver(BUSY))
    reply = run_and(kernel, "%gpus auto --wait 30m", lambda: kernel.change_machine(Driver(FREED)))
    assert reply.text.startswith("Waiting for 1 free GPU, ")
    assert "of 30 min: GPU 0, GPU 1, GPU 2 and GPU 3 (in use)" in reply.text
    assert reply.updated == "They are free now."
    assert "cuda:0 = GPU 2" in reply.stdout


def test_at_the_end_of_its_time_nothing_was_changed(kernel: Kernel) -> None:
    kernel.run("%gpus 3")
    kernel.change_machine(Driver(BUSY))
    reply = kernel.run("%gpus auto:2 --wait 1s")
    assert (
        "Waited 1 s for 2 free GPUs in vain: GPU 0, GPU 1, GPU 2 and GPU 3 (in use); nothing was changed."
        in reply.stderr
    )
    assert kernel.run("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])").stdout == "3\n"


def test_an_interrupt_ends_it_in_one_line_and_changes_nothing(kernel: Kernel) -> None:
    kernel.change_machine(Driver(BUSY))
    reply = run_and(kernel, "%gpus auto --wait 30m", kernel.interrupt)
    assert reply.status == "error"
    assert reply.traceback == "KeyboardInterrupt"
    assert reply.updated == "The waiting was ended; nothing was changed."
    assert kernel.run("import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))").stdout == "None\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("%gpus auto:9 --wait 30m", "auto:9 asks for 9, and only 4 can be picked; try auto:4."),
        (
            "%gpus auto --model H200 --wait 30m",
            "--model H200 fits no GPU here: there is NVIDIA A100-SXM4-80GB.",
        ),
        ("%gpus 1 --wait 30m", "--wait goes with auto; try auto:2 --wait 30m."),
        ("%gpus auto --wait soon", "--wait soon is no time; try --wait 30m, or 90s, or 1h30m."),
        ("%gpus auto --wait 30m --dry-run", "--wait goes neither with --in-process nor with --dry-run."),
    ],
)
def test_what_will_never_come_is_not_waited_for(kernel: Kernel, line: str, says: str) -> None:
    assert says in kernel.run(line).stderr


def test_cells_run_while_a_task_waits(kernel: Kernel) -> None:
    kernel.change_machine(Driver(BUSY))
    assert (
        kernel.run(
            "import asyncio, gpu_magic\nwaiting = asyncio.create_task(gpu_magic.wait_for(min_free='60GB'))"
        ).status
        == "ok"
    )
    assert kernel.run("await asyncio.sleep(1.2); print(waiting.done())").stdout == "False\n"
    kernel.change_machine(Driver(FREED))
    assert "cuda:0 = GPU 2" in kernel.run("print(await waiting)").stdout
    assert kernel.run("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])").stdout == "2\n"


def test_a_claim_that_ends_ends_the_wait(start_kernel: Callable[[], Kernel]) -> None:
    first, second = start_kernel(), start_kernel()
    for one in (first, second):
        one.run("%load_ext gpu_magic")
    first.run("%gpus all")
    reply = run_and(second, "%gpus auto:3 --wait 30m", lambda: first.run("%gpus 0"))
    assert "claimed by" in reply.text
    assert "cuda:2 = GPU 3" in reply.stdout
