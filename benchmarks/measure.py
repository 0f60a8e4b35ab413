"""How things are measured: each contender in its own process, all of them taking turns, medians.

`python -m benchmarks.measure HOW TARGET` is the process that a contender runs in. A target is
`module:function`, or `module:function:argument`: the function prepares what the contender needs, and returns
the call to be timed. This module imports nothing that one might want, so that a cold start is cold.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = [
    "ROOT",
    "Bound",
    "Table",
    "answer_of",
    "ask",
    "clean_environment",
    "milliseconds",
    "steady",
    "take_turns",
]

ROOT = Path(__file__).parent.parent
_ROUND = 0.02  # seconds of calls for one figure
_LIMIT = 600  # seconds, against hanging only
Bound = float | tuple[float, str]  # the most, as a ratio to the first contender, or to one with this name


def milliseconds(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1000:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


class Table:
    """What one question gave: contenders, their medians, their ratio to the first, what they are held to.

    `write` makes the text of a figure that is not a time.
    """

    def __init__(self, title: str, write: Callable[[float], str] = milliseconds) -> None:
        self.title, self._write = title, write
        self.rows: list[tuple[str, float, str, bool]] = []

    @classmethod
    def of(cls, title: str, figures: Mapping[str, float], bounds: Mapping[str, Bound]) -> Self:
        """Return a table of times, by contender."""
        table = cls(title)
        for name, value in figures.items():
            table.add(name, value)
        for name, bound in bounds.items():
            most, than = bound if isinstance(bound, tuple) else (bound, next(iter(figures)))
            at = list(figures).index(name)
            holds = figures[name] <= most * figures[than]
            table.rows[at] = (name, figures[name], f"at most {most:g} x {than}", holds)
        return table

    def add(self, name: str, value: float, most: float | None = None) -> None:
        """Add a contender. `most` is a bound in the unit of the table, for what all machines count alike."""
        bound = "" if most is None else f"at most {self._write(most)}"
        self.rows.append((name, value, bound, most is None or value <= most))

    def __str__(self) -> str:
        first = self.rows[0][1]
        width = max(len(name) for name, *_ in self.rows)
        lines = [self.title]
        for name, value, bound, holds in self.rows:
            ratio = f"{value / first:.2f} x" if first and self._write is milliseconds else ""
            verdict = f"{'✓' if holds else '✗'} {bound}" if bound else ""
            lines.append(f"  {name:<{width}}  {self._write(value):>9}  {ratio:>8}  {verdict}".rstrip())
        return "\n".join(lines)


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


def take_turns(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Make calls in turns, once each before it counts; return the median seconds of each.

    A call that returns a float has measured itself.
    """
    from statistics import median

    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for name in turns(list(calls), rounds):
        begun = perf_counter()
        found = calls[name]()
        seconds[name].append(found if isinstance(found, float) else perf_counter() - begun)
    return {name: median(values) for name, values in seconds.items()}


def steady(
    targets: Mapping[str, str],
    extra: Mapping[str, str] | None = None,
    *,
    rounds: int = 12,
    processes: int = 3,
) -> dict[str, float]:
    """Measure calls in long-lived processes that take turns; return the median seconds of each.

    Each contender gets several processes, one after the other, as the same code can be some percent faster in
    one than in the next. In a round each makes calls for 20 ms.
    """
    from statistics import median

    found: dict[str, list[float]] = {name: [] for name in targets}
    for _ in range(processes):
        running = {name: _start("steady", target, extra) for name, target in targets.items()}
        asks = {name: _asking(process) for name, process in running.items()}
        for name, value in take_turns(asks, rounds).items():
            found[name].append(value)
        for process in running.values():
            process.communicate()
    return {name: median(values) for name, values in found.items()}


def _asking(process: subprocess.Popen[str]) -> Callable[[], float]:
    def ask_it() -> float:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        return float(process.stdout.readline())

    return ask_it


def ask(target: str, extra: Mapping[str, str] | None = None) -> Any:
    """Return what a function returns in a process of its own."""
    from ast import literal_eval

    process = _start("answer", target, extra)
    output, _ = process.communicate()
    assert process.returncode == 0, f"{target} failed"
    return literal_eval(output.splitlines()[-1])


def answer_of(code: str, environment: Mapping[str, str]) -> Any:
    """Run code in a Jupyter kernel of its own; return what it leaves in the variable `answer`."""
    from ast import literal_eval

    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(
        env=dict(environment), extra_arguments=["--HistoryManager.enabled=False"], stderr=subprocess.DEVNULL
    )
    try:
        reply = client.execute_interactive(
            code, user_expressions={"answer": "answer"}, output_hook=lambda _: None, timeout=_LIMIT
        )
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return literal_eval(reply["content"]["user_expressions"]["answer"]["data"]["text/plain"])


def _start(how: str, target: str, extra: Mapping[str, str] | None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.measure", how, target]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=clean_environment(extra), stdin=pipe, stdout=pipe, text=True)


def prepare(target: str) -> Any:
    module, function, *argument = target.split(":", 2)
    return getattr(import_module(module), function)(*argument)


def _serve(target: str) -> None:
    """Answer each line on stdin with the seconds that one call takes, over many calls."""
    call = prepare(target)
    call()
    begun = perf_counter()
    call()
    repeat = max(1, round(_ROUND / (perf_counter() - begun)))
    for _ in sys.stdin:
        begun = perf_counter()
        for _ in range(repeat):
            call()
        print((perf_counter() - begun) / repeat, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "steady":
        _serve(sys.argv[2])
    else:
        print(repr(prepare(sys.argv[2])))
