"""How things are measured: each contender in its own process, all of them taking turns, medians."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import IO, TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["ROOT", "Skipped", "ask", "clean_environment", "cold", "steady", "turns"]

ROOT = Path(__file__).parent.parent


class Skipped(Exception):  # noqa: N818 - it is no error
    """A benchmark can't run here; the message says why."""


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment without what would change the figures."""
    # Without byte code every import compiles, which an installed package never does.
    drop = ("CUDA_", "GPU_MAGIC_", "PYTORCH_NVML", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(drop)}
    path = os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH", "")]))
    return kept | {"PYTHONPATH": path} | dict(extra or {})


def turns(names: Sequence[str], rounds: int) -> Iterator[str]:
    """Yield every name in each round, every time from another place on: who goes first has the cold cache."""
    for number in range(rounds):
        start = number % len(names)
        yield from [*names[start:], *names[:start]]


def steady(
    targets: Mapping[str, str],
    extra: Mapping[str, str] | None = None,
    *,
    rounds: int = 12,
    processes: int = 3,
) -> dict[str, float]:
    """Measure a call that is made again and again, in long-lived processes that take turns.

    Parameters
    ----------
    targets
        For each contender, where it is: see `benchmarks.worker`.
    extra
        Environment variables of the processes.
    rounds
        How often each process is asked; each time it makes calls for 20 ms.
    processes
        How many processes each contender gets, one after the other: the same code can be some percent
        faster in one process than in the next.

    Returns
    -------
    dict[str, float]
        The median, in seconds a call.

    """
    seconds: dict[str, list[float]] = {name: [] for name in targets}
    for _ in range(processes):
        with ExitStack() as stack:
            pipes = {name: stack.enter_context(_Worker(target, extra)) for name, target in targets.items()}
            for name in targets:
                pipes[name].measure()  # warms up
            for name in turns(list(targets), rounds):
                seconds[name].append(pipes[name].measure())
    return {name: median(values) for name, values in seconds.items()}


def cold(
    targets: Mapping[str, str], extra: Mapping[str, str] | None = None, *, rounds: int = 15
) -> dict[str, float]:
    """Measure imports and the first answer, in a fresh process each time; median seconds."""
    seconds: dict[str, list[float]] = {name: [] for name in targets}
    for name in targets:
        _run("cold", targets[name], extra)  # warms up: byte code, the disk's cache
    for name in turns(list(targets), rounds):
        seconds[name].append(float(_run("cold", targets[name], extra)))
    return {name: median(values) for name, values in seconds.items()}


def ask(target: str, extra: Mapping[str, str] | None = None) -> Any:
    """Return what a function returns in a process of its own."""
    return json.loads(_run("answer", target, extra).splitlines()[-1])


def _run(how: str, target: str, extra: Mapping[str, str] | None) -> str:
    done = subprocess.run(
        _command(how, target), env=clean_environment(extra), stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def _command(how: str, target: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.worker", how, target]


class _Worker:
    """A process that waits to be asked, and measures then."""

    def __init__(self, target: str, extra: Mapping[str, str] | None) -> None:
        self._process = subprocess.Popen(
            _command("steady", target),
            env=clean_environment(extra),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def measure(self) -> float:
        asked, answered = _pipe(self._process.stdin), _pipe(self._process.stdout)
        asked.write("\n")
        asked.flush()
        return float(answered.readline())


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
