"""The GPUs in a shell: `gpu-magic` beside gpustat and nvitop, each from its start to its end."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks import timing
from benchmarks.machine import GPUS, PROCESSES, driver_libraries, sleepers
from benchmarks.report import Row, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["run"]

ROUNDS = 9
PYTHON, BARE, OURS = "python -c pass", "bare pynvml, in a script", "gpu-magic"
SCRIPT = """
from benchmarks.readers.bare import read
for memory, used, free, *figures in read()():
    print(memory, used, free, *figures)
"""
COMMANDS = {
    PYTHON: ["-c", "pass"],
    BARE: ["-c", SCRIPT],
    OURS: ["-m", "gpu_magic"],
    "gpustat": ["-m", "gpustat"],
    "nvitop -1": ["-m", "nvitop", "-1"],
}


def run() -> list[Table]:
    names = [name for name in COMMANDS if name not in ("gpustat", "nvitop -1") or find_spec(name.split()[0])]
    with sleepers() as pids, driver_libraries(pids) as variables:
        environment = timing.clean_environment(variables)
        seconds: dict[str, list[float]] = {name: [] for name in names}
        for name in names:
            _run(name, environment)  # warms up: byte code, the disk's cache
        for name in timing.turns(names, ROUNDS):
            seconds[name].append(_run(name, environment))
    rows = [_row(name, {each: median(values) for each, values in seconds.items()}) for name in names]
    title = f"The GPUs in a shell: {GPUS} of them, {PROCESSES} processes each"
    return [Table(title, rows, BARE, notes=["gpustat sleeps 0.1 s a GPU."])]


def _row(name: str, seconds: Mapping[str, float]) -> Row:
    if name in (PYTHON, BARE, OURS):
        return Row(name, seconds[name])
    return Row(name, seconds[name], f"slower than {OURS}", seconds[name] > seconds[OURS])


def _run(name: str, environment: Mapping[str, str]) -> float:
    """Run a command in a process of its own, and return the seconds until it has ended."""
    begun = perf_counter()
    subprocess.run(
        [sys.executable, *COMMANDS[name]],
        env=environment,
        cwd=Path("/"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # nvitop logs each question that a library has no answer to
        check=True,
    )
    return perf_counter() - begun
