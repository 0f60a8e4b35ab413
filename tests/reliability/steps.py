"""The moments at which Python looks for signals while gpu_magic runs: something is done at one of them."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Steps"]


class Steps:
    """Counts moments, and does something at one of them.

    They are the begin of a function and the return from one in C. Of ours they are counted, and of what we call in
    `os` and `contextlib`. In `threading` an interrupt can leave a lock of Python's own locked.

    Parameters
    ----------
    moment
        Which one, counted from 1; 0: none.
    act
        What is done.

    """

    def __init__(self, moment: int = 0, act: Callable[[], object] = lambda: None) -> None:
        self.count, self._moment, self._act = 0, moment, act

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count in a block."""
        sys.setprofile(self._look)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _look(self, frame, event, argument):
        if event not in ("call", "c_return"):
            return
        file = frame.f_code.co_filename
        by_us = frame.f_back is not None and "/gpu_magic/" in frame.f_back.f_code.co_filename
        if "/gpu_magic/" in file or (by_us and file.endswith(("/os.py", "/contextlib.py"))):
            self.count += 1
            if self.count == self._moment:
                self._act()
