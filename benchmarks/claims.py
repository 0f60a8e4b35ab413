"""Claims: what one costs, what `auto` costs, and 64 processes that choose in the same moment."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks import timing
from benchmarks.machine import GPUS, driver_libraries
from benchmarks.report import Row, Table, calls
from tests.claims.racing import Race

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run"]

CLAIM = 2e-3  # seconds that one may cost
SAMPLING = 0.5  # seconds that `auto` looks at utilization
RACERS, ROUNDS = 64, 20


def run() -> list[Table]:
    with TemporaryDirectory() as name, driver_libraries() as machine:
        variables = machine | {"GPU_MAGIC_CLAIMS": str(Path(name) / "claims")}
        return [_cost(variables), _auto(variables), _reads(), _race(variables)]


def _cost(variables: dict[str, str]) -> Table:
    without, with_claim = "%gpus 1, %gpus 3, with c.GpuMagics.claims = False", "%gpus 1, %gpus 3"
    targets = {without: "benchmarks.claims:choose_without", with_claim: "benchmarks.claims:choose"}
    seconds = timing.steady(targets, variables)
    cost = (seconds[with_claim] - seconds[without]) / 2
    rows = [
        Row(without, seconds[without]),
        Row(with_claim, seconds[with_claim]),
        Row("one claim", cost, "at most 2 ms", cost <= CLAIM),
    ]
    return Table("Two choices, one after the other, on 8 GPUs", rows, without)


def _auto(variables: dict[str, str]) -> Table:
    bare, ours = "bare pynvml", "auto:2, without the half second of its looks"
    seconds = timing.steady({bare: "benchmarks.readers.bare:read_keeping_names"}, variables)
    seconds |= timing.steady({ours: "benchmarks.claims:choose_auto"}, variables, rounds=4)
    rows = [Row(bare, seconds[bare]), Row(ours, seconds[ours] - SAMPLING)]
    return Table("`auto` on 8 GPUs", rows, bare)


def _reads() -> Table:
    bare, ours = (
        timing.ask(f"benchmarks.snapshot:count_calls:{target}")[1]
        for target in ("benchmarks.readers.bare:read_keeping_names", "benchmarks.claims:choose_auto")
    )
    rows = [Row("bare pynvml", bare), Row("auto:2", ours, "at most twice that", ours <= 2 * bare)]
    return Table("NVML calls of `auto` on 8 GPUs", rows, "bare pynvml", write=calls)


def _race(variables: dict[str, str]) -> Table:
    """Let all choose at once, many times; in every fourth round all are killed with KILL before they end."""
    environment = timing.clean_environment(variables)
    twice = idle = stuck = 0
    racers: Race | None = None
    try:
        for number in range(ROUNDS):
            if racers is None:
                racers = Race(RACERS, environment)
            uuids, lines = racers.ask("auto:1")
            twice += len(uuids) - len(set(uuids))
            idle += GPUS - len(set(uuids))
            stuck += RACERS - len(uuids) - len(lines)
            if number % 4 == 3:
                racers.kill()
                racers = None
            else:
                racers.ask("reset")
    finally:
        if racers:
            racers.kill()
    rows = [
        Row("GPUs that were picked twice", twice, "none", twice == 0),
        Row("free GPUs that nobody got", idle, "none", idle == 0),
        Row("processes without an answer", stuck, "none", stuck == 0),
    ]
    return Table(
        f"{ROUNDS} rounds of {RACERS} processes that say auto:1 at once, on 8 GPUs", rows, write=calls
    )


# What follows runs in a worker.


def choose() -> Callable[[], object]:
    return _choose(are_wanted=True)


def choose_without() -> Callable[[], object]:
    return _choose(are_wanted=False)


def _choose(*, are_wanted: bool) -> Callable[[], object]:
    import gpu_magic
    from gpu_magic.process.session import current

    current().claims.are_wanted = are_wanted

    def both() -> None:
        gpu_magic.choose(1)
        gpu_magic.choose(3)

    return both


def choose_auto() -> Callable[[], object]:
    import gpu_magic

    return lambda: gpu_magic.choose("auto:2")
