"""The machine that is looked at: 8 GPUs, 4 processes on each, and pretend driver libraries beneath (gcc)."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tests.native import SOURCES, Card, Driver, build, environment

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["GPUS", "PROCESSES", "driver_libraries", "sleepers"]

GPUS, PROCESSES = 8, 4
GIB = 1 << 30


@contextmanager
def sleepers(number: int = GPUS * PROCESSES) -> Iterator[list[int]]:
    """Start that many processes for the GPUs' lists, so that owners and names come from /proc; give PIDs."""
    started = [subprocess.Popen(["sleep", "3600"]) for _ in range(number)]
    try:
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextmanager
def driver_libraries(
    pids: list[int] | None = None, *, gpus: int = GPUS, each: int = PROCESSES
) -> Iterator[dict[str, str]]:
    """Build libnvidia-ml.so.1 and libcuda.so.1 for such a machine; give the variables that lead to them."""
    with TemporaryDirectory() as name:
        folder = build(Path(name))
        source = str(Path(__file__).parent / "instant.c")
        library = folder / "libnvidia-ml.so.1"
        command = ["gcc", "-shared", "-fPIC", "-O2", f"-I{SOURCES}", "-Wl,-soname,libnvidia-ml.so.1"]
        subprocess.run([*command, "-o", str(library), source], check=True)
        state = folder / "machine"
        Driver(tuple(_card(index, (pids or [])[index * each :][:each]) for index in range(gpus))).write(state)
        yield environment(folder, state)


def _card(index: int, mine: list[int]) -> Card:
    return Card(
        f"GPU-{index:08x}-0000-4000-8000-0123456789ab",
        "NVIDIA A100-SXM4-80GB",
        f"00000000:{7 + index:02X}:00.0",
        80 * GIB,
        (len(mine) + 1) * GIB,
        90 + index % 8,
        60 + index % 8,
        (300 + index) * 1000,
        processes=tuple((pid, GIB, 0) for pid in mine),  # they hold memory, and do not compute
        energy=0,
    )
