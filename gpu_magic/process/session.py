"""The state of this process: what it was launched with, and what was chosen.

`choosing` changes it, and `view` reads the machine for it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from functools import cached_property
from typing import TYPE_CHECKING

from gpu_magic.claims.folder import Access
from gpu_magic.claims.held import Claims
from gpu_magic.log import logger
from gpu_magic.process import note_variables, variables_at_start
from gpu_magic.process.environment import (
    EnvironmentChanges,
    launch_environment,
    set_variable,
    variables_now,
    visible_in,
)
from gpu_magic.process.given import Grant, read_grant
from gpu_magic.process.mask import NAMES, By, Variables
from gpu_magic.process.state import probe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.devices.machine_reader import MachineReader
    from gpu_magic.frameworks.settings import FrameworkSettings

__all__ = ["Session", "current", "fresh"]

_log = logger("process")


class Session:
    """What one process was given, what it chose, and whether that can still change.

    Parameters
    ----------
    given
        The variables that say which GPUs it sees as it was given them; None: find out. With them it stands
        for a process of its own, whose claims nobody else sees.

    """

    def __init__(self, given: Variables | None = None) -> None:
        self.pid = os.getpid()
        self._given = given
        self.by: By | None = None  # c.GpuMagics.by
        self.environment = EnvironmentChanges()
        self.chosen: tuple[str, str] | None = None  # the latest request, in small letters, and its bounds
        self.access = Access(is_shared=given is None)
        self.claims = Claims(access=self.access)
        # Made when they are first used.
        self.reader: MachineReader | None = None
        self.settings: FrameworkSettings | None = None

    @cached_property
    def inherited(self) -> Variables:
        """The variables that say which GPUs this process sees as it was given them.

        That is what it was launched with, or what start-up code has set before the first cell.
        """
        if self._given is not None:
            return self._given
        if (ipython := sys.modules.get("IPython.core.getipython")) and (shell := ipython.get_ipython()):
            note_variables(getattr(shell.history_manager, "input_hist_raw", ()))
        at_start = variables_at_start()
        return visible_in(self._launched) if at_start is None else Variables(*at_start)

    @cached_property
    def _launched(self) -> dict[str, str]:
        return launch_environment()

    @cached_property
    def grant(self) -> Grant:
        """Who gave this process its GPUs."""
        return Grant() if self._given is not None else read_grant(self._launched)

    @property
    def memory_options(self) -> str:
        """The options of the latest choice that say how frameworks may take memory; empty: none."""
        return "" if self.settings is None else self.settings.memory.options

    def framework_settings(self) -> FrameworkSettings:
        """Return what this process has set in frameworks: made when it is first needed."""
        if self.settings is None:
            from gpu_magic.frameworks.settings import FrameworkSettings

            self.settings = FrameworkSettings()
        return self.settings

    def unload(self) -> list[str]:
        """Restore what was set; return the names of the variables that changed."""
        can_change = probe().can_change
        # The mask and its order mean something together only. A mask that CUDA has read stays: without it
        # frameworks would contradict each other. One that somebody else has changed since is theirs.
        ours = self.environment
        visible = [name for name in NAMES if name in ours]
        if not can_change or not all(map(ours.is_unchanged, visible)):
            visible = []
        others = [name for name in ours.names if name not in NAMES]
        changed = ours.restore([*visible, *others])
        if changed:
            _log.info("Unloaded: %s as before", ", ".join(changed))
        ours.forget()
        if can_change:
            self.chosen = None
        self.claims.release()
        if self.settings is not None:
            self.settings.forget()
        if self.reader is not None:
            self.reader.close()
        return changed


_current: Session | None = None


def current() -> Session:
    """Return this process's session; the first call makes it, and the first one in a forked process."""
    global _current
    if _current is None or _current.pid != os.getpid():
        before, _current = _current, Session()
        if before is not None:
            _current.by, _current.claims.are_wanted = before.by, before.claims.are_wanted
    return _current


@contextlib.contextmanager
def fresh(mask: str | None, order: str | None) -> Iterator[Session]:
    """Run a block in a session of its own, as if the process had been launched with this mask.

    For tests: what is chosen in the block ends with it.
    """
    global _current  # noqa: PLW0603
    session, before, inside = _current, variables_now(), Variables(mask, order)
    _current = Session(inside)
    _set_all(inside)
    try:
        yield _current
    finally:
        _current.unload()
        _current = session
        _set_all(before)


def _set_all(variables: Variables) -> None:
    for name, value in variables.named(NAMES).items():
        set_variable(name, value)
