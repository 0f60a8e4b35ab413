"""What `%gpu_park` says of the driver's own figures, over the C driver: the rest is CUDA's, and that of children."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpu_magic import park, unpark
from tests.eight_gpus import Array, registered
from tests.machine import CARDS, Driver, environment
from tests.processes import sees_processes
from tests.programs.runner import Runner, devices, gives

if TYPE_CHECKING:
    from pathlib import Path as _Path

pytestmark = sees_processes
MIB = 1 << 20


@pytest.fixture
def on_a_driver(native: _Path, tmp_path: _Path, pretend: dict[str, str]) -> Runner:
    Driver(CARDS).write(tmp_path / "state")
    return Runner({**environment(native, tmp_path / "state"), **devices(pretend)})


@gives(
    [
        {"cuda:1": 512 * MIB},
        "cuda:1 = GPU 1 (NVIDIA A100-SXM4-80GB): 512 MiB → 400 MiB in use",
        "400 MiB stay for CUDA's context and libraries until the kernel ends.",
        *(1, True),
    ],
    on="on_a_driver",
)
def test_the_figures_are_the_driver_s_and_what_cuda_keeps_is_told():
    def use(nbytes):
        card = replace(CARDS[1], processes=((os.getpid(), nbytes, None),))
        Driver((CARDS[0], card, *CARDS[2:])).write(Path(os.environ["GPU_MAGIC_TEST_STATE"]))

    class Counted(Array):
        """Has memory on the GPU while it lives."""

        def __del__(self):
            use(400 * MIB)

    with registered(Path(tempfile.mkdtemp())):
        main = __import__("__main__")
        use(512 * MIB)
        main.x = Counted(1)
        parked = park()
        lines = parked.text.splitlines()
        unpark()
        found = [
            dict(parked.before),
            *(line for line in lines if line.startswith(("cuda:1", "400 MiB"))),
        ]
        return [*found, main.x.ordinal, type(main.x) is Array]


@gives(
    [
        "cuda:1 = GPU 1 (NVIDIA A100-SXM4-80GB): 3.5 GiB → 3.4 GiB in use",
        ["400 MiB stay for CUDA's context and libraries until the kernel ends."],
        True,
    ],
    on="on_a_driver",
)
def test_the_memory_of_processes_of_this_kernel_is_not_cuda_s_context():
    child = subprocess.Popen(["sleep", "600"])

    def use(nbytes):
        card = replace(CARDS[1], processes=((os.getpid(), nbytes, None), (child.pid, 3 << 30, None)))
        Driver((CARDS[0], card, *CARDS[2:])).write(Path(os.environ["GPU_MAGIC_TEST_STATE"]))

    class Counted(Array):
        def __del__(self):
            use(400 * MIB)

    with registered(Path(tempfile.mkdtemp())):
        use(512 * MIB)
        __import__("__main__").x = Counted(1)
        lines = park().text.splitlines()
        child.kill()
        child.wait()
        unpark()
        there = next(line for line in lines if line.startswith("cuda:1"))
        return [
            there,
            [line for line in lines if "CUDA's context" in line],
            any(line.startswith("Also in use") for line in lines),
        ]
