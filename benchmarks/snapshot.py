"""Reading 8 GPUs with 4 processes each, with owners and names: how long, and with how many NVML calls."""

from __future__ import annotations

import os
from importlib import import_module
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks import timing
from benchmarks.kernel import answer_of
from benchmarks.machine import GPUS, PROCESSES, driver_libraries, sleepers
from benchmarks.report import Row, Table, calls
from benchmarks.timing import Skipped
from benchmarks.worker import prepare

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.readers import Plain

__all__ = ["run"]

READERS = {
    "bare pynvml": "benchmarks.readers.bare:read",
    "bare pynvml, names kept": "benchmarks.readers.bare:read_keeping_names",
    "gpu_magic, the facts alone": "benchmarks.readers.ours:read_facts",
    "gpu_magic.gpus()": "benchmarks.readers.ours:read",
    "nvitop, its leanest way": "benchmarks.readers.with_nvitop:read",
    "gpustat": "benchmarks.readers.with_gpustat:read",
}
BARE, KEPT, FACTS, OURS, *OTHERS = READERS
MOST = 1.5  # times bare pynvml
KERNEL_ROUNDS = 9
# Memory, utilization, temperature, power, processes. (pynvml's own function for these makes two calls.)
CALLS_NEEDED = 5 * GPUS


def run() -> list[Table]:
    with sleepers() as pids, driver_libraries(pids) as environment:
        _see_that_all_read_the_same(environment)
        steady = timing.steady(READERS, environment)
        cold = timing.cold(READERS, environment)
        in_kernel = _cold_in_kernels(environment)
    counts = {
        name: timing.ask(f"benchmarks.snapshot:count_calls:{target}") for name, target in READERS.items()
    }
    first = {name: float(count[0]) for name, count in counts.items()}
    again = {name: float(count[1]) for name, count in counts.items()}
    machine = f"{GPUS} GPUs, {PROCESSES} processes each"
    return [
        Table(f"A steady snapshot: {machine}", _steady_rows(steady), KEPT),
        Table("Cold: import and first answer, in a fresh process", _rows(cold), KEPT),
        Table(
            "Cold, in a running kernel with gpu_magic loaded",
            [Row(*each) for each in in_kernel.items()],
            BARE,
        ),
        Table("NVML calls of a steady snapshot", _call_rows(again), write=calls),
        Table("NVML calls up to the first answer", [Row(*each) for each in first.items()], write=calls),
    ]


def _steady_rows(seconds: dict[str, float]) -> list[Row]:
    rows = []
    for row in _rows(seconds):
        if row.name in (FACTS, OURS):
            # gpus() also reads the mask and asks the guard, so like is compared with like in the facts alone.
            strict = [(KEPT, "bare, names kept")] if row.name == FACTS else []
            for base, where in ((BARE, "bare"), *strict):
                bound = f"at most {MOST} times {where}"
                ratio = row.value / seconds[base]
                rows.append(Row(row.name, row.value, bound, ratio <= MOST))
        else:
            rows.append(row)
    return rows


def _rows(seconds: dict[str, float]) -> list[Row]:
    rows = []
    for name, value in seconds.items():
        if name in OTHERS:
            rows.append(Row(name, value, f"slower than {OURS}", value > seconds[OURS]))
        else:
            rows.append(Row(name, value))
    return rows


# A kernel has most of the standard library loaded that the readers import, and the extension has its hooks.
KERNEL_CELL = """
import time
import benchmarks.readers
from benchmarks.worker import prepare
if {extension!r}:
    get_ipython().run_line_magic("load_ext", {extension!r})
begun = time.process_time()
prepare({target!r})()
answer = time.process_time() - begun
"""


def _cold_in_kernels(environment: dict[str, str]) -> dict[str, float]:
    """Measure imports and the first answer in a fresh kernel each time; median seconds of processor time."""
    cells = {
        name: KERNEL_CELL.format(extension="gpu_magic" if name == OURS else "", target=READERS[name])
        for name in (BARE, OURS)
    }
    clean = timing.clean_environment(environment)
    seconds: dict[str, list[float]] = {name: [] for name in cells}
    for cell in cells.values():
        answer_of(cell, clean)  # warms up: byte code, the disk's cache
    for name in timing.turns(list(cells), KERNEL_ROUNDS):
        seconds[name].append(answer_of(cells[name], clean))
    return {name: median(values) for name, values in seconds.items()}


def _call_rows(counts: dict[str, float]) -> list[Row]:
    bound = f"at most {CALLS_NEEDED}: 5 a GPU"
    return [
        Row(name, count, bound, count <= CALLS_NEEDED) if name in (FACTS, OURS) else Row(name, count)
        for name, count in counts.items()
    ]


def _see_that_all_read_the_same(environment: dict[str, str]) -> None:
    """Stop where a contender answers something else than bare pynvml."""
    answers = {
        name: timing.ask(f"benchmarks.snapshot:read_plainly:{target}", environment)
        for name, target in READERS.items()
    }
    if any(owner == "?" for gpu in answers[OURS] for _, owner, _, _ in gpu[-1]):
        raise Skipped(
            "in a container the driver's process numbers are not this one's, so gpu_magic would leave out "
            "the owners that the others look up"
        )
    for name, answer in answers.items():
        if answer != answers[BARE]:
            raise AssertionError(f"{name} read {answer}\nand bare pynvml {answers[BARE]}")


# What follows runs in a worker.


def read_plainly(target: str) -> Plain:
    """Return a reader's answer in the form that all can be compared in."""
    plain: Callable[[Any], Plain] = import_module(target.partition(":")[0]).plain
    return plain(prepare(target)())


def count_calls(target: str) -> tuple[int, int]:
    """Count a reader's NVML calls: up to its first answer, and for one more."""
    import pynvml

    from gpu_magic.testing import simulate

    with simulate(f"{GPUS}xA100-80GB") as machine:
        for gpu in machine.gpus:  # one process each will do: NVML lists all of them in one answer
            gpu.run("sleep", "maria", 1 << 30, pid=os.getpid())
        count = pynvml.nvmlLib.calls
        read = prepare(target)
        read()
        first = count.total()
        read()
        return first, count.total() - first
