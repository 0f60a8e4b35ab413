"""When a GPU is called free: what the figures say about its use."""

from __future__ import annotations

import pytest

from gpu_magic.devices.model import Gpu, MigInstance
from gpu_magic.devices.status import GpuProcess, GpuStatus
from gpu_magic.devices.unknown import UNKNOWN

GIB = 1 << 30


def gpu(total: int, used: int) -> Gpu:
    return Gpu(0, memory_total=total, status=GpuStatus(used, total - used, 0, 31, 56.0, ()))


def test_a_large_gpu_with_seven_gib_in_use_by_nobody_who_is_seen_is_not_free() -> None:
    assert gpu(141 * GIB, 7 * GIB).is_busy is True


def test_a_small_gpu_with_a_desktop_on_it_is_free() -> None:
    assert gpu(4 * GIB, 1 * GIB).is_free


@pytest.mark.parametrize(("used", "is_free"), [(3 * GIB // 2, True), (3 * GIB // 2 + 1, False)])
def test_one_and_a_half_gib_can_be_in_use_on_a_free_gpu(used: int, is_free: bool) -> None:
    assert gpu(80 * GIB, used).is_free is is_free


def test_memory_in_use_that_is_not_told_leaves_it_unknown() -> None:
    status = GpuStatus(UNKNOWN, UNKNOWN, 0, 31, 56.0, ())
    assert Gpu(0, status=status).is_busy is UNKNOWN


PROCESS = GpuProcess(7, "train.py", "maria", UNKNOWN)


@pytest.mark.parametrize(
    ("used", "processes", "is_busy"),
    [
        (GIB // 64, (), False),
        (2 * GIB, (), True),
        (GIB // 64, (PROCESS,), True),
        (UNKNOWN, (), UNKNOWN),
        (GIB // 64, UNKNOWN, UNKNOWN),
    ],
)
def test_a_mig_instance_is_free_by_its_memory_and_its_processes(
    used: object, processes: object, is_busy: object
) -> None:
    status = GpuStatus(used, UNKNOWN, processes=processes)
    instance = MigInstance("MIG-1", "A100 MIG 3g.40gb", 0, 40 * GIB, status)
    assert instance.is_busy is is_busy
