"""What engines cost: their start, a `%%px` of nothing, and calls that are mapped over them."""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from benchmarks import timing
from benchmarks.kernel import answer_of
from benchmarks.report import Row, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["run"]

MACHINE = {"GPU_MAGIC_SIMULATE": "2xA100-80GB clock=0"}
STARTS, CELLS, MAPS = 5, 100, 7  # how often each is measured
CALLS = 1000  # of a map
LONGEST_START, PX, MAP = 2.5, 1.1, 1.05


def run() -> list[Table]:
    return [_starts(), _cells(), _maps()]


def _starts() -> Table:
    theirs, ours = "ipyparallel.Cluster(n=2)", "gpu_magic.cluster()"
    targets = {theirs: "benchmarks.cluster:start_theirs", ours: "benchmarks.cluster:start_ours"}
    seconds: dict[str, list[float]] = {name: [] for name in targets}
    for name in timing.turns(list(targets), STARTS):
        seconds[name].append(timing.ask(targets[name], MACHINE))
    value = median(seconds[ours])
    rows = [
        Row(theirs, median(seconds[theirs])),
        Row(ours, value, f"at most {LONGEST_START} s", value <= LONGEST_START),
    ]
    return Table("Two engines, from the first import to the answer of each", rows, theirs)


def _cells() -> Table:
    code = "from benchmarks.cluster import px_seconds\nanswer = px_seconds()"
    theirs, ours = answer_of(code, timing.clean_environment(MACHINE))
    names = "ipyparallel's %%px", "gpu_magic's %%px"
    return _compared("A cell `%%px pass` on two engines, in a kernel", names, (theirs, ours), PX)


def _maps() -> Table:
    theirs, ours = timing.ask("benchmarks.cluster:map_seconds", MACHINE)
    names = "load_balanced_view().map_sync", "gpu_magic.map"
    return _compared(f"{CALLS} calls of 1 ms on two engines", names, (theirs, ours), MAP)


def _compared(title: str, names: Sequence[str], seconds: Sequence[float], most: float) -> Table:
    (their_name, our_name), (theirs, ours) = names, seconds
    rows = [
        Row(their_name, theirs),
        Row(our_name, ours, f"at most {most:g} times that", ours <= most * theirs),
    ]
    return Table(title, rows, their_name)


# What follows runs in a worker, or in a kernel.


def start_theirs() -> float:
    begun = perf_counter()
    import ipyparallel

    cluster = ipyparallel.Cluster(n=2, log_level=40)
    cluster.start_and_connect_sync()
    seconds = perf_counter() - begun
    cluster.stop_cluster_sync()
    return seconds


def start_ours() -> float:
    begun = perf_counter()
    import gpu_magic

    cluster = gpu_magic.cluster()
    seconds = perf_counter() - begun
    cluster.stop()
    return seconds


def px_seconds() -> list[float]:
    """Return what a cell costs with ipyparallel's own magic and with ours, for the same engines."""
    from IPython.core.getipython import get_ipython

    import gpu_magic

    shell: Any = get_ipython()
    cluster = gpu_magic.cluster()
    cluster.client.activate("all", suffix="_theirs").block = True
    cells = {name: lambda name=name: shell.run_cell_magic(name, "", "pass") for name in ("px_theirs", "px")}
    found = _taking_turns(cells, CELLS)
    cluster.stop()
    return found


def map_seconds() -> list[float]:
    """Return what a map costs with ipyparallel's view and with ours, on the same engines."""
    import gpu_magic

    cluster = gpu_magic.cluster()
    view = cluster.client.load_balanced_view()
    items = range(CALLS)
    maps = {"theirs": lambda: view.map_sync(wait, items), "ours": lambda: gpu_magic.map(wait, items)}
    found = _taking_turns(maps, MAPS)
    cluster.stop()
    return found


def wait(item: int) -> int:
    import time

    time.sleep(1e-3)
    return item


def _taking_turns(calls: Mapping[str, Callable[[], object]], rounds: int) -> list[float]:
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()  # warms up
    for name in timing.turns(list(calls), rounds):
        begun = perf_counter()
        calls[name]()
        seconds[name].append(perf_counter() - begun)
    return [median(values) for values in seconds.values()]
