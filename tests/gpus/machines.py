"""Machines to decide about, as plain data."""

from __future__ import annotations

from gpu_magic.devices.model import UNKNOWN, Gpu, GpuStatus, Inventory, MigInstance
from gpu_magic.devices.problems import GpuCause, GpuProblem

GIB = 1 << 30
# Unlike enough to have short prefixes, and the last two alike for a while.
UUIDS = (
    "GPU-1a2b3c4d-0000-4000-8000-000000000000",
    "GPU-8f3a0000-0000-4000-8000-000000000001",
    "GPU-8f3b0000-0000-4000-8000-000000000002",
    "GPU-c0ffee00-0000-4000-8000-000000000003",
    "GPU-c0ffee00-0000-4000-8000-000000000004",
)
MIG = ("MIG-41b70000-0000-4000-8000-000000000000", "MIG-41b80000-0000-4000-8000-000000000001")


def gpu(index: int, used: int = 0, busy: int = 0, name: str = "NVIDIA A100-SXM4-80GB") -> Gpu:
    status = GpuStatus(used * GIB, (80 - used) * GIB, busy, 31, 56.0, ())
    return Gpu(index, UUIDS[index], name, f"00000000:{7 + index:02X}:00.0", 80 * GIB, status)


def machine(*gpus: Gpu) -> Inventory:
    return Inventory(gpus or tuple(gpu(index) for index in range(5)))


def split(whole: Gpu) -> Gpu:
    instances = tuple(
        MigInstance(uuid, "MIG 3g.40gb", whole.index, number, 40 * GIB, ids=(number + 1, 0))
        for number, uuid in enumerate(MIG)
    )
    return whole._replace(is_split=True, mig=instances)


def lost(well: Gpu) -> Gpu:
    return Gpu(well.index, well.uuid, well.name, problem=GpuProblem(GpuCause.LOST))


def unreadable(well: Gpu) -> Gpu:
    return well._replace(status=GpuStatus(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN))


def unlike() -> Inventory:
    return machine(
        gpu(0, name="NVIDIA GeForce RTX 4090"),
        gpu(1, name="NVIDIA GeForce RTX 4090"),
        gpu(2, name="Tesla T4"),
    )
