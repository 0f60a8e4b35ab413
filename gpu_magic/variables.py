"""Environment variables that we set, and can put back. They change here and nowhere else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Variables", "put"]


class Variables:
    """What we have set, and what stood there before."""

    def __init__(self) -> None:
        self._before: dict[str, str | None] = {}
        self._ours: dict[str, str | None] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._before

    @property
    def names(self) -> list[str]:
        """Those that we have set."""
        return list(self._before)

    def set(self, name: str, value: str | None) -> None:
        """Set a variable; None: take it away."""
        self._before.setdefault(name, os.environ.get(name))
        self._ours[name] = value
        put(name, value)

    def is_as_set(self, name: str) -> bool:
        """Whether nobody has changed it since."""
        return os.environ.get(name) == self._ours[name]

    def put_back(self, names: Iterable[str]) -> list[str]:
        """Put variables back to what they were before; return those that change by it.

        One that somebody else has changed since is theirs.
        """
        changed = []
        for name in names:
            is_as_set, before, ours = self.is_as_set(name), self._before.pop(name), self._ours.pop(name)
            if is_as_set and before != ours:
                put(name, before)
                changed.append(name)
        return changed

    def forget(self) -> None:
        """Leave all that is still set to whoever comes next."""
        self._before.clear()
        self._ours.clear()


def put(name: str, value: str | None) -> None:
    """Set one variable, without remembering what it was."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
