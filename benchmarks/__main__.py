"""`python -m benchmarks`: measure everything, or the topics named behind it."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from benchmarks.timing import Skipped

TOPICS = {
    "load": "load_ext",
    "snapshot": "snapshot",
    "probe": "probe",
    "cells": "cells",
    "run": "on_gpu",
    "move": "move",
    "launch": "launch",
    "claims": "claims",
    "fit": "fitting",
    "cluster": "cluster",
    "ends": "engine_ends",
    "panel": "panel",
    "page": "page",
    "table": "rendering",
    "usage": "usage",
    "wheel": "wheel",
}


def main(names: list[str]) -> int:
    """Print the tables; return 1 where a bound does not hold, 2 for a topic that there is not."""
    if unknown := [name for name in names if name not in TOPICS]:
        print(f"no benchmark is called {unknown[0]!r}; there are {', '.join(TOPICS)}", file=sys.stderr)
        return 2
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} CPUs\n")
    checks: list[bool] = []
    for name in names or TOPICS:
        try:
            tables = import_module(f"benchmarks.{TOPICS[name]}").run()
        except Skipped as reason:
            print(f"{name}: skipped: {reason}\n")
            continue
        for table in tables:
            print(f"{table}\n", flush=True)
            checks.extend(table.checks)
    print(f"{sum(checks)} of {len(checks)} bounds hold.")
    return 0 if all(checks) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
