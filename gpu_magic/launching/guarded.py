"""A command that runs under a guardian, which ends all that it has started: see `guardian`."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_magic.errors import LaunchError
from gpu_magic.launching.guardian import read_stat

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_magic.launching.guardian import Process

__all__ = ["Guarded"]

_GUARDIAN = str(Path(__file__).with_name("guardian.py"))


class Guarded:
    """One command, and the guardian between this process and it.

    Parameters
    ----------
    command
        What is run.
    environment, folder
        Of the command.
    output
        The file that gets all that it writes; None: it writes to where this process does.
    logs
        A folder that is removed where this process is gone.
    has_input
        Whether it reads what this process would.
    linger
        For how many seconds what it has started may go on after its end.

    Attributes
    ----------
    code
        The exit code of the command, negative where a signal has ended it; None while it runs.
    failure
        Why it could not be started; empty where it could.
    has_ended
        Whether all that it started has ended, too.

    Raises
    ------
    LaunchError
        It can't be started.

    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: str,
        output: Path | None,
        logs: str,
        *,
        has_input: bool = False,
        linger: float = 0.0,
    ) -> None:
        if not hasattr(os, "pidfd_open"):
            raise LaunchError("Commands can be launched on Linux alone.")
        self.code: int | None = None
        self.failure = ""
        self.has_ended = False
        # A descriptor that is closed must not be written to: its number is used again.
        self._lock = threading.RLock()  # a signal can come while another is dealt with
        self._unread = b""
        control, self._control = os.pipe()
        self._report, report = os.pipe()
        words = [str(os.getpid()), str(control), str(report), logs, str(linger), *command]
        try:
            with nullcontext() if output is None else output.open("ab") as file:
                self._process = subprocess.Popen(
                    # In a session of its own: Jupyter interrupts the whole process group of a kernel.
                    [sys.executable, "-I", "-S", _GUARDIAN, *words],
                    env=dict(environment),
                    cwd=folder,
                    pass_fds=(control, report),
                    stdin=None if has_input else subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            self._close()
            raise LaunchError(f"{command[0]} can't be started: {error}.") from None
        except BaseException:  # an interrupt
            self._close()
            raise
        finally:
            os.close(control)
            os.close(report)

    @property
    def report(self) -> int:
        """A descriptor that can be read when `read_report` has something to do."""
        return self._report

    def read_report(self) -> None:
        """Read what the guardian has to say, and wait for it where that is nothing."""
        read = os.read(self._report, 4096)
        *lines, self._unread = (self._unread + read).split(b"\n")
        for line in lines:
            what, *value = line.decode().split()
            if what == "exited":
                self.code = int(value[0])
            elif what == "failed":
                self.code, self.failure = 127, os.strerror(int(value[0]))
        if not read:  # the guardian is gone
            if self.code is None:
                self.code = -9
            self._process.wait()
            self._close()

    @property
    def guardian(self) -> Process:
        """The guardian: TERM ends it with all that the command has started."""
        found = read_stat(self._process.pid)
        return self._process.pid, found[2] if found else ""

    @property
    def pid(self) -> int:
        """The guardian's number: all that the command starts descends from it."""
        return self._process.pid

    def give_up(self) -> None:
        """End it, and return when nothing of it is left."""
        self.end()
        while not self.has_ended:
            self.read_report()

    def interrupt(self) -> None:
        """Interrupt the command as Ctrl-C does; what is left after 2 s gets TERM, after 5 s KILL."""
        self._tell(b"i")

    def end(self) -> None:
        """Send TERM to all that the command has started, and KILL 3 s later."""
        self._tell(b"t")

    def _tell(self, what: bytes) -> None:
        with self._lock, suppress(OSError):
            if not self.has_ended:
                os.write(self._control, what)

    def _close(self) -> None:
        with self._lock:
            self.has_ended = True
            os.close(self._control)
            os.close(self._report)
