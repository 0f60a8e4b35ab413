"""The machines that fuzzed requests and variables are about, as plain data."""

from __future__ import annotations

from dataclasses import replace

from gpu_magic.devices.model import Gpu, Inventory
from gpu_magic.devices.problems import Cause, GpuCause, GpuProblem, Problem
from tests.gpus.machines import GIB, gpu, machine, split

__all__ = ["MACHINES"]

AMD_UUIDS = ("GPU-4b2c1a9f8d3e6f7a", "GPU-4b2c1a9f8d3e6f7b", "GPU-deadbeefdeadbeef")


def amd(index: int, prefix: str = "") -> Gpu:
    """Return one of AMD's GPUs; HIP counts the first two the other way round."""
    return Gpu(
        index,
        AMD_UUIDS[index],
        "AMD Instinct MI300X",
        f"0000:{index:02x}:00.0",
        192 * GIB,
        gpu(0).status,
        vendor="amd",
        hip_id=(1, 0, 2)[index],
        prefix=prefix,
    )


# Alike, unlike, split by MIG beneath two drivers, one that does not answer, AMD's, both vendors', and none.
MACHINES: tuple[Inventory, ...] = (
    machine(),
    machine(gpu(0, used=20, busy=90), gpu(1, name="Tesla T4"), gpu(2)),
    replace(machine(gpu(0), split(gpu(1)), gpu(2)), cuda_version="12.4"),
    replace(machine(split(gpu(0))), cuda_version="13.0"),
    machine(gpu(0), replace(gpu(1), problem=GpuProblem(GpuCause.LOST))),
    Inventory(tuple(amd(index) for index in range(3))),
    Inventory((gpu(0), gpu(1), *(amd(index, "amd:") for index in range(3)))),
    Inventory(),
    Inventory(problem=Problem(Cause.NO_LIBRARY)),
)
