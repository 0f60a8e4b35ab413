"""A command that another process has started under a guardian, and that has outlived it."""

from __future__ import annotations

import os
import select
import signal
from typing import TYPE_CHECKING

from gpu_magic.launching.guardian import read_stat, send

if TYPE_CHECKING:
    from gpu_magic.launching.guardian import Process

__all__ = ["Adopted"]


class Adopted:
    """What there is of a `Guarded` for a guardian that is nobody's child here.

    Parameters
    ----------
    guardian
        The process.

    Attributes
    ----------
    code
        None: only the process that has started the command learns its exit code.
    has_ended
        Whether all that it started has ended.

    """

    def __init__(self, guardian: Process) -> None:
        self.guardian = guardian
        self.code: int | None = None
        self.has_ended = False
        try:
            self._handle = os.pidfd_open(guardian[0])
        except OSError:
            self.has_ended = True
            return
        found = read_stat(guardian[0])
        if found is None or found[2] != guardian[1]:
            self._close()

    def read_report(self) -> None:
        """Wait for the guardian's end."""
        waiting = select.poll()  # not `select`, which takes no descriptor above 1023
        waiting.register(self._handle, select.POLLIN)
        waiting.poll()
        self._close()

    def end(self) -> None:
        """Send TERM to all that the command has started, and KILL 3 s later."""
        send(self.guardian, signal.SIGTERM)

    def _close(self) -> None:
        self.has_ended = True
        os.close(self._handle)
