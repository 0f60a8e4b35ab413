"""Engines that are killed and calls that hang: whether the next cell runs, and what is left behind."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from uuid import uuid4

from benchmarks import timing
from benchmarks.cluster import MACHINE
from benchmarks.kernel import fresh_kernel
from benchmarks.report import Row, Table, calls
from tests.processes import marked

if TYPE_CHECKING:
    from benchmarks.kernel import Kernel

__all__ = ["run"]

ROUNDS = 20
ENDS = 30.0  # seconds until processes that are ended are counted as left behind

BEGIN = """
%load_ext gpu_magic
import os, pathlib, time
import gpu_magic
%gpu_cluster
def sleeps(item):
    pathlib.Path(f"{folder}/begun-{item}").write_text(str(os.getpid()))
    time.sleep(600)
def hangs(item):
    import ctypes, signal
    if item == 1:  # as a collective does that waits in C for other ranks
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    pathlib.Path(f"{folder}/begun-{item}").touch()
    ctypes.CDLL(None).pause()
"""
NEXT = (
    "assert gpu_magic.map(abs, range(-9, 0)) == list(range(9, 0, -1))",
    "%%px\nassert 'RANK' in __import__('os').environ",
)


def run() -> list[Table]:
    mark = str(uuid4())
    with TemporaryDirectory() as name:
        folder = Path(name)
        with fresh_kernel(timing.clean_environment(MACHINE) | {"MARK": mark}) as kernel:
            kernel.runs(f"folder = {name!r}\n{BEGIN}")
            ran = [_round(kernel, folder) for _ in range(ROUNDS)]
            kernel.runs("%gpu_cluster stop")
            deadline = time.monotonic() + ENDS
            while (left := len(marked(mark)) - 1) and time.monotonic() < deadline:  # without the kernel
                time.sleep(0.1)
    rows = [
        Row("rounds after which the next cells ran", sum(ran), f"all of {ROUNDS}", sum(ran) == ROUNDS),
        Row("processes left behind", left, "none", left == 0),
    ]
    title = f"{ROUNDS} rounds: an engine is killed in a map, and a map that hangs is interrupted"
    return [Table(title, rows, write=calls)]


def _round(kernel: Kernel, folder: Path) -> bool:
    """Kill an engine, and interrupt a call that does not answer; return whether the cells after both ran."""
    begun = folder / "begun-1"

    def kill() -> None:
        import os

        while not (pid := begun.read_text()):  # it is there before it is written
            time.sleep(0.01)
        os.kill(int(pid), 9)

    ran = []
    for call, act in (("sleeps", kill), ("hangs", kernel.interrupt)):
        ended = kernel.runs_while(
            f"gpu_magic.map({call}, range(4))", lambda: len(list(folder.glob("begun-*"))) == 2, act
        )
        ran += [not ended, *(kernel.runs(cell) for cell in NEXT)]
        for file in folder.glob("begun-*"):
            file.unlink()
    return all(ran)
