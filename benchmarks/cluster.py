"""Engines: their start, a `%%px` of nothing, and mapped calls, beside ipyparallel's own."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from benchmarks.measure import Table, answer_of, ask, clean_environment, take_turns

MACHINE = {"GPU_MAGIC_SIMULATE": "2xA100-80GB clock=0"}
CALLS = 1000


def run() -> list[Table]:
    names = {"ipyparallel.Cluster(n=2)": "start_theirs", "gpu_magic.cluster()": "start_ours"}
    starts = take_turns(
        {name: partial(ask, f"benchmarks.cluster:{how}", MACHINE) for name, how in names.items()}, 5
    )
    px = answer_of("from benchmarks.cluster import cells\nanswer = cells()", clean_environment(MACHINE))
    maps = ask("benchmarks.cluster:maps", MACHINE)
    return [
        Table.of(title, seconds, {list(seconds)[1]: most})
        for title, seconds, most in (
            ("Two engines, from the first import to the answer of each", starts, 0.45),
            ("A cell `%%px pass` on two engines, in a kernel", px, 1.1),
            (f"{CALLS} calls of 1 ms on two engines", maps, 1.2),
        )
    ]


# What follows runs in a worker, or in a kernel.


def start_theirs() -> float:
    begun = time.perf_counter()
    import ipyparallel

    cluster = ipyparallel.Cluster(n=2, log_level=40)
    cluster.start_and_connect_sync()
    seconds = time.perf_counter() - begun
    cluster.stop_cluster_sync()
    return seconds


def start_ours() -> float:
    begun = time.perf_counter()
    import gpu_magic

    cluster = gpu_magic.cluster()
    seconds = time.perf_counter() - begun
    cluster.stop()
    return seconds


def cells() -> dict[str, float]:
    """Return what a cell costs with ipyparallel's own magic and with ours, for the same engines."""
    from IPython.core.getipython import get_ipython

    import gpu_magic

    shell: Any = get_ipython()
    cluster = gpu_magic.cluster()
    cluster.client.activate("all", suffix="_theirs").block = True
    magics = {"ipyparallel's %%px": "px_theirs", "gpu_magic's %%px": "px"}
    calls = {name: partial(shell.run_cell_magic, magic, "", "pass") for name, magic in magics.items()}
    found = take_turns(calls, 100)
    cluster.stop()
    return found


def maps() -> dict[str, float]:
    """Return what a map costs with ipyparallel's view and with ours, on the same engines."""
    import gpu_magic

    cluster = gpu_magic.cluster()
    theirs = cluster.client.load_balanced_view().map_sync
    maps = {"load_balanced_view().map_sync": theirs, "gpu_magic.map": gpu_magic.map}
    found = take_turns({name: partial(one, _wait, range(CALLS)) for name, one in maps.items()}, 7)
    cluster.stop()
    return found


def _wait(item: int) -> int:
    import time

    time.sleep(1e-3)
    return item
