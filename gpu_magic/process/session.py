"""The state of this process: what it was given, and what was chosen."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.claims.folder import Access
from gpu_magic.claims.held import Claims
from gpu_magic.errors import GpuMagicError
from gpu_magic.process.drivers import probe
from gpu_magic.process.environment import (
    EnvironmentChanges,
    launch_environment,
    note_variables,
    variables_at_start,
)
from gpu_magic.process.given import Grant, read_grant
from gpu_magic.process.mask import NAMES, By, Variables
from gpu_magic.process.watch import cuda_watch
from gpu_magic.text import listed

if TYPE_CHECKING:
    from gpu_magic.devices.machine_reader import MachineReader
    from gpu_magic.frameworks.settings import FrameworkSettings

__all__ = ["Restarted", "Session", "current", "use_session"]

_MOST_TYPED = 32
_log = logging.getLogger("gpu_magic.process")


class Restarted(NamedTuple):
    """The choice of `--restart` that this kernel began with."""

    request: str = ""  # as it was saved
    options: object = None  # `gpus.options.Options`
    devices: tuple[str, ...] = ()  # their identities
    replaces: tuple[str, ...] = ()  # the choices of before the restart that it still replaces, as typed
    replaced: str = ""  # the one that it has replaced last, which its user can insist on


class Session:
    """What one process was given, what it chose, and what it has set and claimed.

    Parameters
    ----------
    given
        The variables of a simulated process (for `testing.simulate`). Its claims are not shared. None: this
        process.

    """

    def __init__(self, given: Variables | None = None) -> None:
        self.pid = os.getpid()
        self._given = given
        self.by: By | None = None  # c.GpuMagics.by
        self.environment = EnvironmentChanges()
        self.chosen: object = None  # the latest choice, as it was asked for (`gpus.apply.Asked`)
        self.typed: deque[str] = deque(maxlen=_MOST_TYPED)  # the choices, also those of before a restart
        self.restarted = Restarted()  # until another choice
        self.begun_with: Variables | None = None  # the variables that a choice set when the kernel started
        self.choosing = threading.RLock()  # while a thread makes a choice take effect
        self.access = Access(is_shared=given is None)
        self.claims = Claims(access=self.access, is_at_work=cuda_watch.is_at_work, is_parked=_is_parked)
        self.lost_claims = ""  # what the user has yet to be told about claims that were removed
        self.noted: Variables | None = None  # the variables of which a cell's end told what is wrong
        # The latest change of a choice by other code: that the claims follow, and that a cell has shown.
        self.followed: object = None
        self.reported: object = None
        self.narrowed = ""  # the latest choice with --in-process, as typed
        self._noted: set[str] = set()  # why claims could not be made again, since the latest choice

    @cached_property
    def reader(self) -> MachineReader:
        """The reader of the machine, made on first use so that `%unload_ext` loads no binding."""
        from gpu_magic.devices.machine_reader import MachineReader

        made: MachineReader = vars(self).setdefault("reader", MachineReader())  # two threads can be here
        return made

    @cached_property
    def inherited(self) -> Variables:
        """The variables that decide which GPUs the process sees, at launch or before the first cell."""
        if self._given is not None:
            return self._given
        if (ipython := sys.modules.get("IPython.core.getipython")) and (shell := ipython.get_ipython()):
            note_variables(getattr(shell.history_manager, "input_hist_raw", ()))
        return variables_at_start()

    @cached_property
    def grant(self) -> Grant:
        """Who gave this process its GPUs."""
        return Grant() if self._given is not None else read_grant(launch_environment())

    @cached_property
    def settings(self) -> FrameworkSettings:
        """The settings of frameworks that this process has made."""
        from gpu_magic.frameworks.settings import FrameworkSettings

        made: FrameworkSettings = vars(self).setdefault("settings", FrameworkSettings())  # as in `reader`
        return made

    @property
    def memory_options(self) -> str:
        """The options of the latest choice for the memory of frameworks. Empty: none."""
        return self.settings.memory.options if "settings" in vars(self) else ""

    def renew_claims(self) -> None:
        """Claim again what other users can no longer see. Note it in `lost_claims`, once a choice."""
        lost, problem = self.claims.renew()
        if not lost or problem in self._noted:
            return
        self._noted.add(problem)
        labels: dict[str, str] = {}
        with contextlib.suppress(GpuMagicError):
            devices = self.reader.inventory().devices
            labels = {one.identity: one.label for one in devices if one.identity in lost}
        names = listed([*labels.values(), *sorted(lost - labels.keys())])
        if problem:
            self.lost_claims = f"Other users can no longer see your claim of {names}: {problem}."
            return
        self.lost_claims = f"Your claim of {names} was removed. It was made again."
        for uuid, claims in self.claims.others().items():
            if uuid in labels:
                self.lost_claims += f" {labels[uuid]} is now also {listed(map(str, claims))}."

    def note_on_claims(self, problem: str) -> str:
        """Return what a choice prints about its claims. `problem` is the result of `Claims.hold`."""
        note = f"Other users cannot see your claim: {problem}." if problem else self.lost_claims
        self.lost_claims, self._noted = "", {problem} - {""}
        return note

    def unload(self) -> list[str]:
        """Restore the variables and release the claims. Return the names of the variables that changed."""
        can_change, changes = probe().can_change, self.environment
        # The mask and its order have a meaning only together. A mask that CUDA has read stays, because
        # without it frameworks would contradict each other. A mask that other code has changed also stays.
        visible = [name for name in NAMES if name in changes]
        if not can_change or not all(map(changes.is_unchanged, visible)):
            visible = []
        changed = changes.restore([*visible, *(name for name in changes.names if name not in NAMES)])
        if changed:
            _log.info("Unloaded: %s as before", ", ".join(changed))
        changes.forget()
        self.by = None
        if can_change:
            self.chosen = None
        self.claims.release()
        if "settings" in vars(self):
            self.settings.forget()
        if "reader" in vars(self):
            self.reader.close()
        return changed


def _is_parked() -> bool:
    parking = sys.modules.get("gpu_magic.process.parked")
    return parking is not None and parking.parked.is_everything()


_current: Session | None = None
_making = threading.RLock()  # while a thread makes the session


def _renew_lock() -> None:
    global _making  # noqa: PLW0603 - in a forked child, the thread that held the lock is gone
    _making = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def current() -> Session:
    """Return this process's session. The first call in a process makes it, also in a forked process."""
    global _current  # noqa: PLW0603 - a process has one session
    session = _current
    if session is None or session.pid != os.getpid():
        with _making:
            session = _current
            if session is None or session.pid != os.getpid():
                before, session = session, Session()
                if before is not None:
                    session.by, session.claims.are_wanted = before.by, before.claims.are_wanted
                _current = session
    return session


def use_session(other: Session | None) -> Session | None:
    """Use another session from now on. Return the previous session."""
    global _current
    before, _current = _current, other
    return before
