"""The environment variables of this process, as launched and as set.

They change here and nowhere else, but for one that `watch` sets while it watches.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from gpu_magic.process.mask import NAMES, Variables

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["EnvironmentChanges", "launch_environment", "set_variable", "variables_now", "visible_in"]


def variables_now() -> Variables:
    """Return the variables that say which GPUs this process sees, as they are now."""
    return visible_in(os.environ)


def visible_in(environment: Mapping[str, str]) -> Variables:
    """Return the variables that say which GPUs a process with an environment sees."""
    return Variables(*map(environment.get, NAMES))


def launch_environment() -> dict[str, str]:
    """Return the environment that this process was launched with, whatever was set since (Linux: /proc).

    Elsewhere, and where a program has written its title over it (setproctitle does), it is that of now.
    """
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
            entries = file.read().split(b"\0")
    except OSError:
        return dict(os.environ)
    launched: dict[str, str] = {}
    for name, equals, value in (entry.partition(b"=") for entry in entries):
        if equals and not re.fullmatch(rb"[^\s=]+", name):
            return dict(os.environ)
        if equals:
            launched.setdefault(os.fsdecode(name), os.fsdecode(value))  # getenv takes the first, too
    return launched or dict(os.environ)


class EnvironmentChanges:
    """The variables that we have set, and the values they had before."""

    def __init__(self) -> None:
        self._before: dict[str, str | None] = {}
        self._ours: dict[str, str | None] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._before

    @property
    def names(self) -> list[str]:
        """The variables that we have set."""
        return list(self._before)

    def set(self, name: str, value: str | None) -> None:
        """Set a variable; None removes it.

        The value before is the one that somebody else has set last.
        """
        if name not in self or not self.is_unchanged(name):
            self._before[name] = os.environ.get(name)
        self._ours[name] = value
        set_variable(name, value)

    def is_unchanged(self, name: str) -> bool:
        """Whether a variable still has the value that we gave it."""
        return os.environ.get(name) == self._ours[name]

    def restore(self, names: Iterable[str]) -> list[str]:
        """Give variables back the values they had before; return the names of those that change by it.

        A variable that somebody else has changed since is left as it is.
        """
        changed = []
        for name in names:
            is_ours, before, ours = self.is_unchanged(name), self._before.pop(name), self._ours.pop(name)
            if is_ours and before != ours:
                set_variable(name, before)
                changed.append(name)
        return changed

    def forget(self) -> None:
        """Leave all that is still set as it is, for good."""
        self._before.clear()
        self._ours.clear()


def set_variable(name: str, value: str | None) -> None:
    """Set one variable, without remembering its value before; None removes it."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
