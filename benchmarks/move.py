"""`to_gpu` beside `module.to(device)`: on CUDA where it is, else on the tests' pretend accelerator."""

from __future__ import annotations

import gc
import os
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import timing
from benchmarks.report import Row, Table
from tests.native import pretend_path

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run"]

COUNT = 10_000  # parameter tensors
THEIRS, OURS, PLAN = "module.to(device)", "gpu_magic.to_gpu(module)", "planning it alone"
CHUNK = 64 << 20
GIB = 1 << 30


def run() -> list[Table]:
    with tempfile.TemporaryDirectory() as folder:
        has_cuda = timing.ask("benchmarks.move:cuda")
        extra = {} if has_cuda else {"PYTHONPATH": pretend_path(Path(folder))}
        names = {THEIRS: "theirs", OURS: "ours", PLAN: "plan"}
        targets = {name: f"benchmarks.move:{function}" for name, function in names.items()}
        medians = timing.steady(targets, extra, rounds=4, processes=3)
        rows = [Row(name, medians[name]) for name in names]
        where = "CUDA" if has_cuda else "a pretend accelerator"
        tables = [Table(f"{COUNT} parameters to {where} and back", rows, THEIRS)]
        peaks = {
            name: float(timing.ask(f"benchmarks.move:peak:{names[name]}", extra)) for name in (THEIRS, OURS)
        }
        rows = [
            Row(THEIRS, peaks[THEIRS]),
            Row(OURS, peaks[OURS], "64 MiB more", peaks[OURS] <= peaks[THEIRS] + CHUNK),
        ]
        tables.append(
            Table("Host memory over that at the beginning, 1 GiB to the device", rows, "", _mebibytes)
        )
        if has_cuda:
            tables.append(_large())
        return tables


def _large() -> Table:
    targets = {THEIRS: "benchmarks.move:large:theirs", OURS: "benchmarks.move:large:ours"}
    medians = timing.steady(targets, rounds=4, processes=2)
    return Table(
        "1 GiB in ordinary memory to CUDA and back", [Row(*pair) for pair in medians.items()], THEIRS
    )


def _mebibytes(size: float) -> str:
    return f"{size / (1 << 20):.0f} MiB"


# What follows runs in a worker.


def cuda() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def theirs() -> Callable[[], object]:
    model, device = _model(COUNT, 8), _device()
    return lambda: model.to(device).to("cpu")


def ours() -> Callable[[], object]:
    import gpu_magic

    model = _model(COUNT, 8)
    return lambda: gpu_magic.to_cpu(gpu_magic.to_gpu(model))


def plan() -> Callable[[], object]:
    from gpu_magic.frameworks.target import LogicalDevice
    from gpu_magic.move.plan import Plan

    model = _model(COUNT, 8)

    def once() -> None:
        for device in (0, 1):  # the others go there and back
            Plan(LogicalDevice("gpu", device)).add("model", model)

    return once


def peak(who: str) -> int:
    """Return how many bytes of the host's memory a move took at its most, without a pretend device's."""
    import torch

    import gpu_magic

    device = _device()
    gpu_magic.to_gpu(_model(2, 8))  # whatever is done once
    model = _model(256, 1024)  # 4 MiB each
    move: Callable[[], Any] = partial(gpu_magic.to_gpu, model) if who == "ours" else partial(model.to, device)
    pages, is_pretended = os.sysconf("SC_PAGE_SIZE"), device != "cuda:0"
    used: list[int] = []
    ends = threading.Event()

    def look() -> None:
        while not ends.wait(0.0005):
            theirs = torch.accelerator.memory_reserved(0) if is_pretended else 0
            resident = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * pages
            used.append(resident - theirs)

    gc.collect()
    watch = threading.Thread(target=look)
    watch.start()
    time.sleep(0.05)
    before = used[-1]
    move()
    ends.set()
    watch.join()
    return max(used) - before


def large(who: str) -> Callable[[], object]:
    import torch

    import gpu_magic

    source = torch.empty(GIB, dtype=torch.uint8).random_()
    if who == "ours":
        return lambda: gpu_magic.to_cpu(gpu_magic.to_gpu(source))
    return lambda: source.to("cuda:0").to("cpu")


def _device() -> str:
    return "cuda:0" if cuda() else "pretend:0"


def _model(count: int, width: int) -> Any:
    """Return a module with so many parameters: matrices, and with small ones a bias each."""
    import torch

    torch.manual_seed(0)
    is_small = width < 100
    number = count // 2 if is_small else count
    return torch.nn.ModuleList(torch.nn.Linear(width, width, bias=is_small) for _ in range(number))
