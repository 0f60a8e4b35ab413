"""Functions that run at once, each in a thread of its own."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def at_once(*calls: list[Any], here: list[Any]) -> list[Any]:
    """Call functions in threads, and one in this thread; return what they return, that one's last.

    Each is handed, after its other arguments, a function that returns when all of them have called it.
    """
    meeting = threading.Barrier(len(calls) + 1)

    def run(function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments, meeting.wait)
        except BaseException:
            meeting.abort()  # nobody waits for this one
            raise

    with ThreadPoolExecutor(len(calls)) as threads:
        running = [threads.submit(run, *call) for call in calls]
        try:
            mine = run(*here)
        except threading.BrokenBarrierError:
            for one in running:
                if not isinstance(one.exception(), threading.BrokenBarrierError):
                    one.result()  # raises what has broken it
            raise
        return [*(one.result() for one in running), mine]
