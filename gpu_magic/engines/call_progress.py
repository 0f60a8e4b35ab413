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
        self._begun = time.monotonic()
        self._bar: Any = None

    def update(self, done: int) -> None:
        """Show how many calls have ended."""
        seconds = time.monotonic() - self._begun
        if self._bar is None and seconds >= _DELAY:
            # disable=None: where the output is a file, there is none
            self._bar = progress(desc=self._name, total=self._total, unit="call", disable=None)
            if not self._bar.disable:
                self._bar.start_t = self._bar.last_print_t = self._bar.start_t - seconds
        if self._bar is not None:
            self._bar.update(done - self._bar.n)

    def close(self, done: int) -> None:
        """Show how many calls have ended in the end."""
        if self._bar is not None:
            self.update(done)
            self._bar.close()
            # Its `__del__` must not wait for the garbage collector: an interrupt that comes there is lost.
            self._bar = None
