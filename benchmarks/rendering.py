"""Writing `%gpus`' table, as text for a terminal and as HTML for a notebook. No bound is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gpu_magic
from benchmarks import timing
from benchmarks.machine import PROCESSES
from benchmarks.report import Row, Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_magic.gpus.table import Gpus

__all__ = ["run"]


def run() -> list[Table]:
    targets = {
        f"{how}, {gpus} GPUs": f"benchmarks.rendering:{how.lower()}:{gpus}"
        for gpus in (8, 64)
        for how in ("Text", "HTML")
    }
    rows = [Row(name, value) for name, value in timing.steady(targets).items()]
    return [Table(f"%gpus' table, {PROCESSES} processes a GPU", rows, rows[0].name)]


# What follows runs in a worker.


def text(gpus: str) -> Callable[[], str]:
    return _gpus(int(gpus)).__repr__


def html(gpus: str) -> Callable[[], str]:
    return _gpus(int(gpus))._repr_html_


def _gpus(gpus: int) -> Gpus:
    from gpu_magic.testing import simulate

    with simulate(f"{gpus}xA100-80GB") as machine:
        for gpu in machine.gpus:
            for _ in range(PROCESSES):
                gpu.run("train.py", "maria", 10 << 30, work=20)
        return gpu_magic.gpus()
