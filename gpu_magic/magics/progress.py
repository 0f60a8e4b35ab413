"""A progress bar for what takes over a second."""

from __future__ import annotations

import time
from typing import Self

from IPython.display import ProgressBar

__all__ = ["Progress"]

_PATIENCE = 1.0  # seconds
_BETWEEN = 0.1  # seconds between two pictures


class Progress:
    """Shows itself once a second has gone by, as a bar in a notebook and as text in a terminal.

    Parameters
    ----------
    total
        Bytes.

    """

    def __init__(self, total: int) -> None:
        self._total, self._shown = total, False
        self._next = time.monotonic() + _PATIENCE

    def __enter__(self) -> Self:
        return self

    def tell(self, done: int) -> None:
        """Be told how many bytes are done."""
        now = time.monotonic()
        if now < self._next or not self._total:
            return
        self._next = now + _BETWEEN
        if not self._shown:
            self._bar = ProgressBar(100)
            self._bar.display()
            self._shown = True
        self._bar.progress = 100 * done // self._total

    def __exit__(self, *exc_info: object) -> None:
        if self._shown and exc_info[0] is None:
            self._bar.progress = 100
