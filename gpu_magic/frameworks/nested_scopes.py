"""Scopes of one setting that can end in any order, and restore what was set before all of them.

They end in another order than they began where a generator is suspended within one, or tasks overlap.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

__all__ = ["NestedScopes"]


class Scope(Protocol):
    """A scope that knows the value that was set before it."""

    before: Any


class NestedScopes(threading.local):
    """The scopes of one setting that are entered in this thread, the outermost first."""

    def __init__(self) -> None:
        self._entered: list[Scope] = []

    def enter(self, scope: Scope) -> None:
        self._entered.append(scope)

    def leave(self, scope: Scope) -> bool:
        """Remove a scope; return whether it was the innermost, and is to restore the value before it.

        Otherwise the scope that was entered next is handed that value, to restore it when it ends.
        """
        index = next(index for index, entered in enumerate(self._entered) if entered is scope)
        is_innermost = index == len(self._entered) - 1
        if not is_innermost:
            self._entered[index + 1].before = scope.before
        del self._entered[index]
        return is_innermost
