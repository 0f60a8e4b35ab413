"""One guard probe: asking the CUDA driver library whether it was started, after each cell and import."""

from __future__ import annotations

import ctypes
from importlib.util import find_spec
from typing import TYPE_CHECKING

from benchmarks import timing
from benchmarks.machine import driver_libraries
from benchmarks.report import Row, Table
from gpu_magic.process import drivers
from gpu_magic.process.drivers import State, probe

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run", "start_cuda"]

MOST = 60e-6
TARGETS = {
    "not loaded, without amdsmi": "benchmarks.probe:absent_without_amdsmi",
    "not loaded": "benchmarks.probe:absent",
    "not loaded, PyTorch imported": "benchmarks.probe:absent_beside:torch",
    "loaded, not initialized": "benchmarks.probe:live",
    "frozen": "benchmarks.probe:frozen",
    "frozen, seen for the first time": "benchmarks.probe:frozen_just_now",
}


def run() -> list[Table]:
    targets = {
        name: target
        for name, target in TARGETS.items()
        if not target.endswith(":torch") or find_spec("torch")
    }
    with driver_libraries() as environment:
        seconds = timing.steady(targets, environment)
    seconds |= timing.steady({"not loaded, without the pretend driver": TARGETS["not loaded"]})
    rows = []
    for name, value in seconds.items():
        # Where amdsmi is, ROCm's library is looked for, too.
        rows.append(
            Row(name, value) if _has_amdsmi(name) else Row(name, value, "at most 60 µs", value <= MOST)
        )
    return [Table("One guard probe", rows)]


def _has_amdsmi(name: str) -> bool:
    return "without amdsmi" not in name and find_spec("amdsmi") is not None


# What follows runs in a worker.


def absent_without_amdsmi() -> Callable[[], object]:
    drivers._has_amdsmi = lambda: False  # type: ignore[assignment] # noqa: SLF001 - as on most machines
    return absent()


def absent() -> Callable[[], object]:
    return _in(State.ABSENT)


def absent_beside(module: str) -> Callable[[], object]:
    """Probe in a process with many libraries, each of which the loader compares with the one asked for."""
    __import__(module)
    return _in(State.ABSENT)


def live() -> Callable[[], object]:
    ctypes.CDLL("libcuda.so.1")
    return _in(State.LIVE)


def frozen() -> Callable[[], object]:
    start_cuda()
    return _in(State.FROZEN)


def frozen_just_now() -> Callable[[], object]:
    start_cuda()

    def forget_and_probe() -> None:
        drivers.driver().started_in = None  # else it is never asked twice
        probe()

    return forget_and_probe


def start_cuda() -> None:
    """Do what a framework does at its first use of CUDA."""
    answer = ctypes.CDLL("libcuda.so.1").cuInit(0)
    assert answer == 0, answer


def _in(expected: State) -> Callable[[], object]:
    state = probe()
    assert state is expected, state
    return probe
