"""Overhead: how long snapshots, measuring and the guard take."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.gpu.claim import Seen, measurement
from tests.gpu.programs.common import alone, counted

if TYPE_CHECKING:
    from collections.abc import Callable

_TIMES = 20


def _milliseconds(call: Callable[[], Any]) -> list[float]:
    times = []
    for _ in range(_TIMES + 1):
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) * 1e3)
    return times


@measurement(
    "The time of the first snapshot of all GPUs, and of later snapshots.", "devices/nvml.py", "a driver"
)
def snapshot() -> Seen:
    import gpu_magic

    times = _milliseconds(gpu_magic.gpus)
    first, median = times[0], sorted(times[1:])[_TIMES // 2]
    figures = {"first, ms": first, "later, ms": median, "GPUs": len(gpu_magic.gpus())}
    return Seen(True, f"{first:.1f} ms, then {median:.2f} ms for {counted(len(gpu_magic.gpus()))}", figures)


@measurement(
    "The time of one reading of a GPU. While a cell is measured, gpu_magic reads the GPU ten times a second.",
    "measure/recorder.py",
    "a driver",
)
def sample() -> Seen:
    import gpu_magic
    from gpu_magic.measure.recorder import read

    uuid = alone()
    gpu_magic.gpus()  # which finds them
    began = time.time()
    times = _milliseconds(lambda: read((uuid,), began, with_energy=False))
    median = sorted(times[1:])[_TIMES // 2]
    return Seen(True, f"{median:.2f} ms, {median:.1f} % of the time of one core", {"ms": median})


@measurement(
    "The slowdown of a cell of small kernels while gpu_magic measures the cell. Measured and unmeasured runs "
    "alternate.",
    "measure/recorder.py",
    "PyTorch for CUDA",
    "a driver",
)
def measured_cell() -> Seen:
    alone()
    import torch

    import gpu_magic

    def work() -> None:
        one = torch.ones(64, 64, device="cuda")
        for _ in range(20_000):
            one = one * 1.0
        torch.cuda.synchronize()

    def measured() -> None:
        with gpu_magic.gpu_time():
            work()

    work()
    pairs = [(_seconds(work), _seconds(measured)) for _ in range(5)]
    plain, watched = zip(*pairs, strict=True)
    alone_for, watched_for = sorted(plain)[2], sorted(watched)[2]
    ratio, more = watched_for / alone_for, (watched_for - alone_for) * 1e3
    what = f"{(ratio - 1) * 100:+.1f} %, {more:+.1f} ms for {alone_for * 1e3:.0f} ms"
    return Seen(True, what, {"ratio": ratio, "ms more": more})


@measurement(
    "The time of the guard's check after each cell, once the driver's library is loaded.",
    "process/watch.py",
    "a driver",
)
def guard() -> Seen:
    from gpu_magic.process.drivers import driver
    from tests.gpu.programs.cuda import Cuda

    alone()
    Cuda()
    ask = driver()
    times = sorted(_milliseconds(ask.is_started)[1:])
    return Seen(True, f"{times[_TIMES // 2] * 1e3:.0f} µs", {"µs": times[_TIMES // 2] * 1e3})


def _seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
