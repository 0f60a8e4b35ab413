"""Since when processes have done nothing: what their last cells and what was seen say together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pynvml
import pytest

from gpu_magic.devices.idle import Idleness
from gpu_magic.devices.model import UNKNOWN, Claim, Gpu, GpuProcess, GpuStatus, Inventory, Unknown, idle_text
from gpu_magic.devices.processes import ProcessNames, parent_of
from gpu_magic.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.devices.nvml import Nvml

HOUR = 3600
TRAIN = GpuProcess(11, "train.py", "tom", 21 << 30, work=0, started=5)
KERNEL = GpuProcess(12, "ipykernel", "maria", 21 << 30, work=0, started=6)


def machine(*processes: GpuProcess, util: int | Unknown = 0, claims: tuple[Claim, ...] = ()) -> Inventory:
    return Inventory(
        (Gpu(0, "GPU-0", status=GpuStatus(utilization=util, processes=processes, claims=claims)),)
    )


def idle_of(found: Inventory, pid: int = 11) -> list[int | Unknown]:
    """Return since when a process rests, for each GPU that it is on."""
    statuses = [gpu.status.users for gpu in found]
    return [one.idle for users in statuses if users is not UNKNOWN for one in users if one.pid == pid]


def watched(*looks: Inventory, every: float = 10.0) -> list[int | Unknown]:
    """Return since when the process rests after looks at a machine, one behind another."""
    watch, found = Idleness(), looks[0]
    for at, look in enumerate(looks):
        found = watch.note(look, at * every)
    return idle_of(found)


def claimed(idle: int | Unknown, pid: int | Unknown = 12) -> tuple[Claim, ...]:
    return (Claim("maria", 0.0, pid, "a.ipynb", idle=idle),)


@pytest.fixture
def child() -> Iterator[int]:
    """Return the number of a child process of this one."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as one:
        yield one.pid
        one.communicate()


def test_a_process_rests_for_as_long_as_it_was_seen_to() -> None:
    works = machine(TRAIN._replace(work=3), KERNEL)
    assert watched(*[machine(TRAIN, KERNEL)] * 100) == [990]
    assert watched(*[machine(TRAIN, KERNEL)] * 50, works, *[machine(TRAIN, KERNEL)] * 9) == [90]
    assert watched(machine(TRAIN, KERNEL)) == [0]


def test_of_the_time_between_looks_that_are_far_apart_nothing_is_said() -> None:
    assert watched(machine(TRAIN), machine(TRAIN), every=HOUR) == [0]


def test_without_its_own_figure_a_process_that_is_alone_does_what_the_gpu_does() -> None:
    unknown = TRAIN._replace(work=UNKNOWN)
    assert watched(*[machine(unknown)] * 11) == [100]
    assert watched(*[machine(unknown)] * 11, machine(unknown, util=1)) == [0]
    assert watched(*[machine(unknown, util=UNKNOWN)] * 11) == [UNKNOWN]
    assert watched(*[machine(unknown, KERNEL)] * 11) == [100]  # nobody works on a GPU that rests
    assert watched(*[machine(unknown, KERNEL, util=1)] * 11) == [UNKNOWN]


def test_work_on_one_gpu_is_work() -> None:
    working = machine(TRAIN._replace(work=50)).gpus[0]._replace(index=1)
    assert watched(*[Inventory((*machine(TRAIN).gpus, working))] * 11) == [0, 0]


def test_a_number_that_another_process_has_by_now_starts_again() -> None:
    assert watched(*[machine(TRAIN)] * 11, machine(TRAIN._replace(started=9))) == [0]


def test_a_kernel_rests_since_its_last_cell_and_not_while_one_runs() -> None:
    look = Idleness().note(machine(KERNEL, claims=claimed(9 * HOUR)), 0)
    assert idle_of(look, 12) == [9 * HOUR]
    watch = Idleness()
    for at in range(0, 2000, 10):
        look = watch.note(machine(KERNEL, claims=claimed(0)), at)
    assert idle_of(look, 12) == [0]


def test_a_thread_that_works_after_the_last_cell_is_no_rest() -> None:
    watch = Idleness()
    claims = claimed(9 * HOUR)
    look = watch.note(machine(KERNEL._replace(work=40), claims=claims), 0)
    assert idle_of(look, 12) == [0]
    assert look[0].status.claims[0].idle == 0
    assert idle_of(watch.note(machine(KERNEL, claims=claims), 10), 12) == [10]


def test_a_kernel_whose_cells_nobody_tells_of_is_never_idle() -> None:
    """A cell can run on the CPU for hours."""
    watch = Idleness()
    for at in range(0, HOUR, 10):
        look = watch.note(machine(TRAIN, KERNEL), at)
    assert idle_of(look, 12) == [UNKNOWN]
    assert idle_of(look) == [HOUR - 10]  # a script has no cells
    assert Idleness().look(machine(KERNEL), 0, {12: 9 * HOUR})[12, True] == 9 * HOUR  # its server tells


STARTS_AN_ORPHAN = """
import subprocess, sys
print(subprocess.check_output("sleep 600 >/dev/null & echo $!", shell=True, text=True), end="", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def orphan() -> Iterator[tuple[int, int]]:
    """Return the numbers of a kernel and of what a shell has started for it, which has ended."""
    kernel = [sys.executable, "-c", STARTS_AN_ORPHAN]
    pipe = subprocess.PIPE
    with subprocess.Popen(kernel, stdin=pipe, stdout=pipe, start_new_session=True) as one:
        assert one.stdout is not None
        number = int(one.stdout.readline())
        yield one.pid, number
        os.kill(number, signal.SIGKILL)
        one.communicate()


def test_what_the_kernel_started_in_the_background_is_its_own(orphan: tuple[int, int]) -> None:
    kernel, number = orphan
    assert parent_of(number) != kernel
    train = GpuProcess(number, "train.py", "maria", 21 << 30, work=90, started=7)
    look = Idleness().note(machine(train, claims=claimed(9 * HOUR, kernel)), 0)
    assert look[0].status.claims[0].idle == 0
    look = Idleness().note(machine(train._replace(work=0), claims=claimed(9 * HOUR, kernel)), 0)
    assert look[0].status.claims[0].idle == 9 * HOUR


def test_work_of_a_child_is_no_rest_of_the_kernel(child: int) -> None:
    """The child is on another GPU than the one that the kernel has claimed."""
    train = GpuProcess(child, "train.py", "maria", 21 << 30, work=90, started=7)
    claims = claimed(9 * HOUR, os.getpid())
    watch = Idleness()
    at_work = Inventory((*machine(train).gpus, machine(claims=claims)[0]._replace(index=1)))
    at_rest = Inventory((*machine(train._replace(work=0)).gpus, machine(claims=claims)[0]._replace(index=1)))
    assert watch.note(at_work, 0)[1].status.claims[0].idle == 0
    assert watch.note(at_rest, 10)[1].status.claims[0].idle == 10
    assert watch.note(at_rest, HOUR)[1].status.claims[0].idle == HOUR  # also after a gap without looks
    assert idle_of(watch.note(at_rest, HOUR), child) == [0]
    assert Idleness().note(at_rest, 0)[1].status.claims[0].idle == 9 * HOUR


def test_without_figures_of_processes_a_kernel_and_its_child_do_what_the_gpu_does(child: int) -> None:
    train = GpuProcess(child, "train.py", "maria", 21 << 30, started=7)
    kernel = GpuProcess(os.getpid(), "ipykernel", "maria", 1 << 30, started=6)
    claims = claimed(9 * HOUR, os.getpid())

    def rests(*processes: GpuProcess, util: int | Unknown) -> int | Unknown:
        return Idleness().note(machine(*processes, util=util, claims=claims), 0)[0].status.claims[0].idle

    assert rests(kernel, train, util=97) == 0
    assert rests(kernel, train, util=0) == 9 * HOUR
    assert rests(kernel, train, TRAIN, util=0) == 9 * HOUR
    assert rests(kernel, train, TRAIN._replace(work=UNKNOWN), util=97) is UNKNOWN  # one of the three works
    assert rests(kernel, train, util=UNKNOWN) is UNKNOWN  # a MIG instance
    assert rests(util=97) == 9 * HOUR  # whoever works, has ended meanwhile


def test_a_program_whose_child_runs_a_cell_is_at_work(child: int) -> None:
    """A kernelspec can start the kernel through another program, whose number the Jupyter server knows."""
    kernels = {os.getpid(): 9 * HOUR}
    look = Idleness().look(machine(claims=claimed(0, child)), 0, kernels)
    assert look[os.getpid(), True] == 0
    look = Idleness().look(machine(claims=claimed(HOUR, child)), 0, kernels)
    assert look[os.getpid(), True] == 9 * HOUR


def test_where_the_driver_lists_no_processes_a_kernel_rests_if_its_gpu_does() -> None:
    def rests(util: int | Unknown) -> int | Unknown:
        unlisted = GpuStatus(utilization=util, claims=claimed(9 * HOUR))
        return Idleness().note(Inventory((Gpu(0, "GPU-0", status=unlisted),)), 0)[0].status.claims[0].idle

    assert [rests(util) for util in (0, 1, UNKNOWN)] == [9 * HOUR, UNKNOWN, UNKNOWN]


def test_in_a_container_a_process_with_the_kernel_s_number_is_not_the_kernel() -> None:
    """The driver's number 12 is the host's there, and the claim's number 12 is the container's."""
    stranger = GpuProcess(12, memory=21 << 30, work=0)
    watch = Idleness()
    look = watch.note(machine(stranger, claims=claimed(9 * HOUR)), 0)
    assert look[0].status.claims[0].idle == 9 * HOUR
    assert idle_of(look, 12) == [0]  # the stranger has been seen just now
    look = watch.note(machine(stranger._replace(work=50), claims=claimed(9 * HOUR)), 10)
    assert look[0].status.claims[0].idle is UNKNOWN  # it can be the kernel
    look = watch.note(machine(stranger._replace(work=50), claims=claimed(0)), 20)
    assert look[0].status.claims[0].idle == 0


def test_claims_that_are_read_again_keep_what_was_seen_of_their_processes() -> None:
    """`auto` reads the claims again when its turn comes, and names their processes if it is refused."""
    claims, late = claimed(9 * HOUR), Claim("tom", 50.0, 13, idle=HOUR)
    look = Idleness().note(machine(KERNEL._replace(work=40), claims=claims), 0)
    assert [one.idle for one in look.with_claims({"GPU-0": (*claims, late)})[0].status.claims] == [0, HOUR]
    at_rest = Idleness().note(machine(KERNEL, claims=claims), 0)
    assert at_rest.with_claims({"GPU-0": claimed(0)})[0].status.claims[0].idle == 0  # a cell has begun


def test_a_claim_from_a_container_speaks_for_itself_unless_a_process_works() -> None:
    claims = claimed(HOUR, UNKNOWN)
    look = Idleness().note(machine(KERNEL, claims=claims), 0)
    assert look[0].status.claims[0].idle == HOUR
    look = Idleness().note(machine(KERNEL._replace(work=5), claims=claims), 0)
    assert look[0].status.claims[0].idle is UNKNOWN


@pytest.mark.parametrize(
    ("idle", "text"),
    [(UNKNOWN, ""), (0, ""), (599, ""), (600, "idle 10 min"), (9 * HOUR, "idle 9 h")],
)
def test_it_is_shown_from_ten_minutes_on(idle: int | Unknown, text: str) -> None:
    assert idle_text(idle) == text
    end = f", {text}" if text else ""
    line = ProcessNames([]).line(TRAIN._replace(age=10 * HOUR, idle=idle))
    assert str(line) == f"tom: train.py, 21.0 GiB, for 10 h{end}"
    assert str(claimed(idle)[0]).partition(", since ")[2].partition(",")[2] == end[1:]


def test_the_driver_tells_who_works_from_the_second_look_on(nvml: Nvml) -> None:
    with simulate("2xA100-80GB") as there:
        there.gpus[0].run("train.py", "tom", 1 << 30, work=70)
        there.gpus[0].run("rest.py", "tom", 1 << 30)
        there.gpus[1].run("rest.py", "tom", 1 << 30)
        there.gpus[1].fail("nvmlDeviceGetProcessUtilization", pynvml.NVML_ERROR_NOT_SUPPORTED)
        first, second = nvml.inventory(), nvml.inventory()

    def work(found: Inventory) -> list[int | Unknown]:
        users = [gpu.status.users for gpu in found]
        return [one.work for some in users if some is not UNKNOWN for one in some]

    assert work(first) == [UNKNOWN] * 3
    assert work(second)[2] is UNKNOWN
    assert work(second)[1] == 0
