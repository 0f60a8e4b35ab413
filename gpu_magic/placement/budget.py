"""How much is looked at of variables that nobody has named: so many objects, and so many seconds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Budget"]

OBJECTS = 200_000
SECONDS = 1.0
# Which part of what is left one variable may take, so that a large one leaves something for those after it.
_PART = 4
# How many objects are looked at between two looks at the clock.
_BETWEEN = 256


class Budget:
    """What may be spent on looking at several variables, one after the other, each in a `with` block.

    >>> budget = Budget()
    >>> with budget.variable("data"):
    ...     found = holdings_of([data], budget)
    >>> budget.unfinished
    ['data']

    Parameters
    ----------
    objects
        How many objects may be looked at.
    seconds
        How long that may take.

    Attributes
    ----------
    unfinished
        The names of the variables that hold more than was looked at.

    """

    def __init__(self, objects: int = OBJECTS, seconds: float = SECONDS) -> None:
        self._objects, self._seconds = objects, seconds
        self._name = ""
        # Of the variable that is being looked at.
        self._left, self._begin, self._end = 0, 0.0, 0.0
        self._at_next_look = 0
        self.unfinished: list[str] = []

    def variable(self, name: str) -> Self:
        """Begin with another variable."""
        self._name = name
        return self

    def __enter__(self) -> Self:
        self._left = max(self._objects // _PART, _BETWEEN)
        self._begin = time.monotonic()
        self._end = self._begin + self._seconds / _PART
        self._at_next_look = self._left - _BETWEEN
        self._objects -= self._left
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._objects += max(0, self._left)
        self._seconds -= time.monotonic() - self._begin

    def allows(self, objects: int = 1) -> bool:
        """Return whether so many more objects may be looked at, and count them."""
        self._left -= objects
        if self._left >= 0:
            if self._left > self._at_next_look:
                return True
            self._at_next_look = self._left - _BETWEEN
            if time.monotonic() < self._end:
                return True
        if self._name not in self.unfinished:
            self.unfinished.append(self._name)
        return False
