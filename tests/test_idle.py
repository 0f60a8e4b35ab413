"""Idle means the same wherever it is shown: no cell, and no work of the kernel or its descendants on a GPU since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gpu_magic.devices.idle import Idleness
from gpu_magic.devices.model import Claim, Gpu, GpuProcess, GpuStatus, Inventory
from gpu_magic.gpus.table import Gpus, rows
from gpu_magic.panel.machine import detail_of
from gpu_magic.server.reading import Kernel, Reading
from gpu_magic.testing import simulate
from tests.claims.holders import stranger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOURS = 9 * 3600
CHILD = "__import__('subprocess').Popen(['sleep', '600']).pid"
# What a shell has started in the background has lost its parent, but not its session.
ORPHAN = "int(__import__('subprocess').check_output('sleep 600 >/dev/null & echo $!', shell=True))"


@pytest.fixture(params=[CHILD, ORPHAN], ids=["child", "in the background"])
def pids(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """Return the numbers of a kernel and of a process that it has started."""
    with stranger() as kernel:
        child = kernel.run(request.param)
        yield kernel.pid, child
        kernel.run(f"os.kill({child}, 9)")


def look(kernel: int, child: int, work: int) -> Inventory:
    """Return a machine on which the last cell of a kernel has ended nine hours ago, and its child works or rests."""
    claim = Claim("maria", 0.0, kernel, "a.ipynb", idle=HOURS)
    holds = GpuProcess(kernel, "ipykernel", "maria", 2 << 30, is_this_process=False, work=0, started=5)
    trains = GpuProcess(child, "train.py", "maria", 9 << 30, is_this_process=False, work=work, started=6)
    gpus = (
        Gpu(0, "GPU-0", status=GpuStatus(utilization=0, processes=(holds,))),
        Gpu(1, "GPU-1", status=GpuStatus(utilization=work, processes=(trains,))),
        Gpu(2, "GPU-2", status=GpuStatus(utilization=0, processes=(), claims=(claim,))),
    )
    return Idleness().note(Inventory(gpus), 0)


def table(machine: Inventory) -> str:
    return str(next(rows(Gpus(machine))).users[0])


def panel(machine: Inventory) -> str:
    (process,) = detail_of(machine[0])["processes"]
    age: str = process["age"]
    return age.replace("\u00a0", " ")


def claim(machine: Inventory) -> str:
    return str(machine[2].status.claims[0])


@pytest.mark.parametrize("place", [table, panel, claim])
def test_a_kernel_whose_child_trains_is_not_idle(
    pids: tuple[int, int], place: Callable[[Inventory], str]
) -> None:
    assert "idle" not in place(look(*pids, work=90))
    assert "idle 9 h" in place(look(*pids, work=0))


def test_nor_is_it_in_the_chip_and_the_view_of_running_kernels(pids: tuple[int, int]) -> None:
    """Both show `idle` of the server's answer, from `idle_from` on (tests/browser/test_machine.py)."""
    kernel, child = pids

    def idle(work: int) -> Any:
        reading = Reading()
        with simulate("2xA100-80GB", clock=lambda: 0.0) as machine:
            machine.gpus[0].run("ipykernel", "maria", 2 << 30, pid=kernel, is_same_user=True)
            machine.gpus[1].run("train.py", "maria", 9 << 30, pid=child, is_same_user=True, work=work)
            answer = reading.read({kernel: Kernel("the-kernel", HOURS)})
            reading.reader.close()
        figures = [gpu["kernels"]["the-kernel"] for gpu in answer["gpus"]]
        assert [one["memory"] for one in figures] == [2 << 30, 9 << 30]
        (found,) = {one["idle"] for one in figures}
        return found >= answer["idle_from"]

    assert [idle(90), idle(0)] == [False, True]
