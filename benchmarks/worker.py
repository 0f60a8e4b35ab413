"""The process that a contender runs in: `python -m benchmarks.worker HOW TARGET`.

A target is `module:function`, or `module:function:argument`. The function prepares whatever the contender
needs and returns the call to be timed. This module imports nothing that a contender might want, so that a
cold start is cold.
"""

from __future__ import annotations

import sys
from importlib import import_module
from time import perf_counter
from typing import Any

ROUND_SECONDS = 0.02


def prepare(target: str) -> Any:
    module, function, *argument = target.split(":", 2)
    return getattr(import_module(module), function)(*argument)


def steady(target: str) -> None:
    """Answer each line on stdin with the seconds that one call takes, over many calls."""
    call = prepare(target)
    call()
    begun = perf_counter()
    call()
    repeat = max(1, round(ROUND_SECONDS / (perf_counter() - begun)))
    for _ in sys.stdin:
        begun = perf_counter()
        for _ in range(repeat):
            call()
        print((perf_counter() - begun) / repeat, flush=True)


def cold(target: str) -> None:
    """Print the seconds from nothing imported to the first answer."""
    begun = perf_counter()
    prepare(target)()
    print(perf_counter() - begun)


def answer(target: str) -> None:
    """Print what the function returns, as JSON."""
    import json

    print(json.dumps(prepare(target)))


if __name__ == "__main__":
    {"steady": steady, "cold": cold, "answer": answer}[sys.argv[1]](sys.argv[2])
