"""What a launch costs: a script that ends at once, by hand and through `gpu_magic.launch`."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks import timing
from benchmarks.report import Row, Table

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run"]

MOST = 40e-3
BY_HAND, LAUNCHED = "the script by hand", "gpu_magic.launch(...).wait()"
SCRIPT = ["-c", "pass"]


def run() -> list[Table]:
    targets = {BY_HAND: "benchmarks.launch:by_hand", LAUNCHED: "benchmarks.launch:launched"}
    seconds = timing.steady(targets, {"GPU_MAGIC_SIMULATE": "8xA100-80GB clock=0"})
    more = seconds[LAUNCHED] - seconds[BY_HAND]
    rows = [
        Row(BY_HAND, seconds[BY_HAND]),
        Row(LAUNCHED, seconds[LAUNCHED], "at most 40 ms more", more <= MOST),
    ]
    return [Table("A Python script that ends at once", rows)]


# What follows runs in a worker.


def by_hand() -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, *SCRIPT], check=True)


def launched() -> Callable[[], object]:
    import gpu_magic

    return lambda: gpu_magic.launch([sys.executable, *SCRIPT], count=1).wait()
