"""Every fault with every face: no traceback of ours, no wrong choice, no lost variable, no environment in between.

The kernels, pynvml and PyTorch are real. The faults are made in the driver's libraries, PyTorch's GPUs, the disk, /proc
and the clock. After every cell `Stage` checks what is shown and logged, all variables, and the GPUs that CUDA sees.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from tests.conftest import LIMIT
from tests.reliability.faults import FACES, FAULTS, HEALTHY, Fault, Variant
from tests.reliability.stage import SETUP, Stage, cuda_sees

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernel.conftest import Kernel


def table(stage: Stage) -> None:
    stage.type("%gpus")


def choose(stage: Stage) -> None:
    stage.type("%gpus 1,3", asks=(1, 3))
    if stage.is_alone:
        stage.type("%gpus 2", asks=(2,))
    stage.type("%gpus auto", asks=1)
    stage.type("%gpus reset", asks="reset")


def panel(stage: Stage) -> None:
    stage.open_panel()
    stage.click({"type": "look", "view": "v", "visibility": "watched", "open": []})
    stage.click({"type": "choose", "request": "2", "restart": False, "page": "p"}, asks=(2,))
    stage.close_panel()
    stage.type("%gpus reset", asks="reset")


def run(stage: Stage) -> None:
    stage.type("%%on_gpu 0\ntorch.ones(1).add_(1)")


def move(stage: Stage) -> None:
    stage.type("%to_gpu x batch")
    stage.type("%where")
    stage.type("%gpu_park")
    stage.type("%gpu_unpark")
    stage.type("%to_cpu x batch")


def launch(stage: Stage) -> None:
    stage.type("%gpu_launch --gpus 3 sh -c 'echo sees $CUDA_VISIBLE_DEVICES'")
    stage.type("%%gpu_launch --gpus 3 python\nprint('number', 6 * 7)")


def cluster(stage: Stage) -> None:
    stage.type("%gpu_cluster 3")
    stage.type("%%px --no-stream\nimport os; print('sees', os.environ['CUDA_VISIBLE_DEVICES'])")
    stage.type("%gpu_cluster stop")


def wait(stage: Stage) -> None:
    stage.type("%gpus auto --wait 1s", asks=1)
    stage.type("%gpus 1 --wait 1s", asks=(1,))
    stage.type("%gpus reset", asks="reset")


def usage(stage: Stage) -> None:
    stage.type("%%gpu_time\nsum(range(100_000))")
    stage.type("%gpu_time report")


def guard(stage: Stage) -> None:
    stage.type("print(gpu_magic.guard())")
    if stage.is_last:  # CUDA can be started once
        stage.type("%gpus 3", asks=(3,))
        has_cuda = isinstance(cuda_sees(stage.now.environment), list)
        stage.kernel.run("import ctypes\ntry: ctypes.CDLL('libcuda.so.1').cuInit(0)\nexcept OSError: pass")
        stage.type("print(gpu_magic.guard())")
        stage.type("%gpus 2", asks=() if has_cuda else (2,))


# The guard's is the last, as its CUDA stays started.
PLAYS: dict[str, Callable[[Stage], None]] = {
    play.__name__: play for play in (table, choose, panel, run, move, launch, cluster, wait, usage, guard)
}
assert tuple(PLAYS) == FACES

# One that a GPU has, one that the driver has and one of the system; the others pass the same doors (test_door.py).
BEFORE_EACH_PUSH = ("lost-before", "permission", "read-only")


@pytest.mark.timeout(600)  # all that users type, in one kernel
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(
            fault, id=fault.name, marks=() if fault.name in BEFORE_EACH_PUSH else pytest.mark.nightly
        )
        for fault in FAULTS
    ],
)
def test_a_fault(fault: Fault, start_kernel: Callable[..., Kernel], pretend: dict[str, str]) -> None:
    without = {} if fault.has_driver else {"LD_LIBRARY_PATH": ""}
    kernel = start_kernel(HEALTHY, imported=("torch", "torch._dynamo"), **pretend, **without)
    assert kernel.run("%load_ext gpu_magic").status == "ok"
    reply = kernel.run(SETUP)
    assert reply.status == "ok", reply.traceback
    refused = set()
    for variant in fault.variants:
        refused |= try_variant(kernel, fault, variant, is_last=variant is fault.variants[-1])
    assert refused == fault.refuses


def try_variant(kernel: Kernel, fault: Fault, variant: Variant, *, is_last: bool) -> set[str]:
    """Return the faces of which a cell was refused."""
    kernel.change_machine(HEALTHY)
    kernel.run("import os\nfor _name in _TOLD: os.environ.pop(_name, None)\n%reload_ext gpu_magic")
    if not fault.chosen_before:
        kernel.change_machine(variant.driver)
        kernel.run("%reload_ext gpu_magic")
    stage = Stage.at(kernel, variant, is_last=is_last, is_alone=len(fault.variants) == 1)
    if fault.chosen_before:
        stage.type("%gpus 1,3", asks=(1, 3))
    refused = set()
    for name in fault.faces:
        kernel.change_machine(variant.driver)
        kernel.run(variant.code)
        stage.begin()
        PLAYS[name](stage)
        if stage.refused:
            refused.add(name)
    if not is_last and fault.has_driver:
        check_that_it_heals(stage)
    return refused


def check_that_it_heals(stage: Stage) -> None:
    stage.kernel.change_machine(HEALTHY)
    stage.kernel.run("import os\nfor _name in _TOLD: os.environ.pop(_name, None)\n%reload_ext gpu_magic")
    wait_until_the_driver_answers(stage.kernel)
    stage.begin()
    stage.variant = Variant(name=f"after {stage.variant.name}")
    stage.type("%gpus 1,3", asks=(1, 3))
    assert not stage.refused, stage.said
    stage.type("%gpus reset", asks="reset")


def wait_until_the_driver_answers(kernel: Kernel) -> None:
    """Wait for the ends of calls that hung: they come moments after the fault, and until then a GPU is not asked."""
    deadline = time.monotonic() + LIMIT
    while re.search("not answering|not answer:", kernel.run("print(gpu_magic.gpus())").stdout):
        assert time.monotonic() < deadline
        time.sleep(0.02)
