"""A progress bar for a move that takes over a second."""

from __future__ import annotations

import time
from typing import Self

from IPython.display import ProgressBar

__all__ = ["Progress"]

_DELAY = 1.0  # seconds before the bar is shown
_INTERVAL = 0.1  # seconds between two updates


class Progress:
    """Shows itself after a second, as a bar in a notebook and as text in a terminal.

    Parameters
    ----------
    total
        Bytes.

    """

    def __init__(self, total: int) -> None:
        self._total, self._is_shown = total, False
        self._next = time.monotonic() + _DELAY

    def __enter__(self) -> Self:
        return self

    def update(self, done: int) -> None:
        """Show how many bytes are done, where it is time to."""
        now = time.monotonic()
        if now < self._next or not self._total:
            return
        self._next = now + _INTERVAL
        if not self._is_shown:
            self._bar = ProgressBar(100)
            self._bar.display()
            self._is_shown = True
        self._bar.progress = 100 * done // self._total

    def __exit__(self, *exc_info: object) -> None:
        if self._is_shown and exc_info[0] is None:
            self._bar.progress = 100
