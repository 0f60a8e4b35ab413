"""Scopes of one setting that end in whatever order, and leave behind what was before all of them.

They end in another order than they began where a generator is suspended within one, or tasks overlap.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

__all__ = ["Nesting"]


class Nested(Protocol):
    """A scope that knows what was set before it."""

    before: Any


class Nesting(threading.local):
    """The scopes of a setting that are entered in this thread, the outermost first."""

    def __init__(self) -> None:
        self._entered: list[Nested] = []

    def enter(self, scope: Nested) -> None:
        self._entered.append(scope)

    def leave(self, scope: Nested) -> bool:
        """Take a scope out; tell whether it was the innermost, so that what was before it is to be set.

        Else the one within it comes to know what was before.
        """
        place = next(index for index, one in enumerate(self._entered) if one is scope)
        is_innermost = place == len(self._entered) - 1
        if not is_innermost:
            self._entered[place + 1].before = scope.before
        del self._entered[place]
        return is_innermost
