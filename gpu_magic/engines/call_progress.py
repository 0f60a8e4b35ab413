"""A bar for calls that take over a second: ipyparallel's, in a notebook and in a terminal."""

from __future__ import annotations

import time
from typing import Any

from ipyparallel.util import progress

__all__ = ["CallProgress"]

_DELAY = 1.0  # seconds


class CallProgress:
    """Shows itself after a second.

    Parameters
    ----------
    name
        What is called.
    total
        How many times.

    """

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total = name, total
        self._shown_from = time.monotonic() + _DELAY
        self._bar: Any = None

    def update(self, done: int) -> None:
        """Show how many calls have ended."""
        if self._bar is None and time.monotonic() >= self._shown_from:
            # disable=None: not where the output is a file
            self._bar = progress(desc=self._name, total=self._total, initial=done, unit="call", disable=None)
        if self._bar is not None:
            self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
