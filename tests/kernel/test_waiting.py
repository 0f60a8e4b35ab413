"""Waiting for GPUs: a line says who has them, an interrupt ends it, and other cells can run meanwhile."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpu_magic.testing import simulate, start_cuda
from tests.machine import CARDS, GIB, Driver
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Typed
    from tests.kernel.conftest import Kernel, Reply

# Somebody has memory on all four GPUs, and works on them.
BUSY = tuple(replace(card, used=40 * GIB, util=90) for card in CARDS)
MASK = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"
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
    assert reply.updated == "The GPUs are free now."
    assert "cuda:0 = GPU 2" in reply.said
    kernel.run("%gpus reset")
    kernel.change_machine(Driver(BUSY))
    kernel.run("pass")  # what was heard before is no sign of this wait
    reply = run_and(kernel, "%gpus 2 --wait 30m", lambda: kernel.change_machine(Driver(FREED)))
    assert reply.text.startswith("Waiting for GPU 2, ")
    assert "of 30 min: in use. Next look in " in reply.text
    assert kernel.run(MASK).stdout == "2\n"


def test_an_interrupt_ends_it_in_one_line_and_changes_nothing(kernel: Kernel) -> None:
    kernel.change_machine(Driver(BUSY))
    reply = run_and(kernel, "%gpus auto --wait 30m", kernel.interrupt)
    assert reply.status == "error"
    assert reply.traceback == "KeyboardInterrupt"
    assert reply.updated == "Waiting was stopped. Nothing was changed."
    assert kernel.run("import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))").stdout == "None\n"


def test_what_will_never_come_is_not_waited_for(typed: Typed) -> None:
    goes = "--wait goes with auto or GPU numbers. Try auto --wait 30m"
    with simulate("4xA100-80GB"):
        for line, says in (
            ("auto:9 --wait 30m", "auto:9 can pick only 4 GPUs. Try auto:4"),
            ("auto --model H200 --wait 30m", "--model H200 matches no GPU"),
            *((f"{word} --wait 30m", goes) for word in ("all", "none", "reset")),
            ("9 --wait 30m", "There is no GPU 9"),
            ("auto --wait 30m --dry-run", "--wait goes with neither --in-process nor --dry-run."),
        ):
            assert says in typed(f"%gpus {line}").text


def test_where_cuda_has_started_nothing_is_waited_for_and_what_it_has_is_no_other(
    typed: Typed,
) -> None:
    with simulate("4xA100-80GB", clock=lambda: 0.0) as machine:
        typed("%gpus 2 --only-free")
        start_cuda()
        for gpu in machine.gpus:
            gpu.run("train.py", "maria", 40 << 30, work=90)
        said = typed("%gpus 3 --wait 30m").text
        assert "Too late: " in said
        assert "Waiting" not in said
        assert typed("%gpus 3 --only-free").text
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "2"
        done = typed("%gpus 2 --only-free")
        assert done.error is None
        assert "cuda:0 = GPU 2" in done.text


def test_cells_run_while_a_task_waits(kernel: Kernel) -> None:
    kernel.change_machine(Driver(BUSY))
    assert (
        kernel.run(
            "import asyncio, gpu_magic\nwaiting = asyncio.create_task(gpu_magic.wait_for(min_free='60GB'))"
        ).status
        == "ok"
    )
    assert kernel.run("await asyncio.sleep(0.3); print(waiting.done())").stdout == "False\n"
    kernel.change_machine(Driver(FREED))
    assert "cuda:0 = GPU 2" in kernel.run("print(await waiting)").said
    assert kernel.run("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])").stdout == "2\n"


@pytest.fixture
def two(start_kernel: Callable[..., Kernel]) -> tuple[Kernel, Kernel]:
    """Return the kernels of two notebooks, of which the first has chosen GPU 3."""
    first = start_kernel(JPY_SESSION_NAME="/home/maria/train.ipynb")
    second = start_kernel()
    first.load().run("%gpus 3")
    return first, second.load()


def test_a_gpu_that_is_named_is_waited_for_until_nobody_else_has_claimed_it(
    two: tuple[Kernel, Kernel],
) -> None:
    first, second = two
    second.run("%gpus 0")
    reply = second.run("%gpus 3,1 --only-free")
    assert re.search(
        r"Not free: GPU 3 \(claimed by \w+: train.ipynb, since .+\)\. To wait for them, add --wait 30m",
        reply.refusal,
    )
    assert second.run(MASK).stdout == "0\n"
    assert "cuda:0 = GPU 3" in first.run("%gpus 3 --only-free").said  # its own claim is no other's
    reply = run_and(second, "%gpus 1,3 --wait 30m", lambda: first.run("%gpus 0"))
    assert re.match(
        r"Waiting for GPU 1 and GPU 3, \d s of 30 min: GPU 3 \(claimed by \w+: train.ipynb, since .+\)\. Next",
        reply.text,
    )
    assert reply.updated == "The GPUs are free now."
    assert "cuda:1 = GPU 3" in reply.said
    assert "3" in first.run("%gpus 3").said  # by its number it can be chosen as before
    assert second.run(MASK).stdout == "1,3\n"
    second.run("import asyncio, gpu_magic\n%gpus none")
    first.run("%gpus all")
    second.run("waiting = asyncio.create_task(gpu_magic.wait_for('3'))")
    assert second.run("await asyncio.sleep(0.3); print(waiting.done())").stdout == "False\n"
    first.run("%gpus reset")
    assert "cuda:0 = GPU 3" in second.run("print(await waiting)").said


def test_a_command_starts_once_its_gpus_are_free(kernel: Kernel) -> None:
    kernel.change_machine(Driver(BUSY))
    free = lambda: kernel.change_machine(Driver(FREED))  # noqa: E731
    show = "printenv CUDA_VISIBLE_DEVICES"
    assert "Not free: GPU 2 (in use)" in kernel.run(f"%gpu_launch --gpus 2 --only-free {show}").stderr
    reply = run_and(kernel, f"%gpu_launch --gpus auto --wait 30m {show}", free)
    assert reply.text.startswith("Waiting for 1 free GPU, ")
    assert "The GPUs are free now." in reply.shown
    assert reply.stdout == "2\n"
    kernel.change_machine(Driver(BUSY))
    kernel.run("pass")  # what was heard before is no sign of this wait
    code = f"import gpu_magic\ntask = gpu_magic.launch({show!r}, gpus=2, wait='30m', on_wait=lambda line: display(line))"
    assert " of 30 min: in use. Next look in " in run_and(kernel, code, free).text
    assert kernel.run("task.wait(); print(task.output, end='')").stdout == "2\n"


def test_a_command_that_waits_for_another_one_of_the_kernel(kernel: Kernel) -> None:
    kernel.run("%gpu_launch --background first --gpus 1 sleep 600")
    refused = kernel.run("%gpu_launch --gpus 1 --only-free true").stderr
    assert "Not free: GPU 1 (claimed by this kernel" in refused
    assert "changed" not in refused
    reply = run_and(kernel, "%gpu_launch --gpus 1 --wait 30m true", kernel.interrupt)
    assert reply.traceback == "KeyboardInterrupt"
    assert reply.updated == "Waiting was stopped. Nothing was changed."
    kernel.run("%gpu_tasks stop first")
    assert kernel.run("%gpu_launch --gpus 1 --only-free true").status == "ok"
