"""A process under a guardian, the folder for what it writes, a port for its ranks, and how it has ended."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

from gpu_magic.errors import LaunchError
from gpu_magic.launch import guardian

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Causes", "Guarded", "RunFolder", "free_ports", "how_it_ended"]

_PREFIX = "gpu_magic-"
_LOCK = "lock"  # a file that is locked for as long as somebody wants the folder; one that is kept has none


class Guarded:
    """One command, and the guardian between this process and it, which ends all that the command has started.

    `output` is the file that gets all that the command writes; None: it writes where this process does. With
    `has_input` it reads what this process would. `logs` is a folder that is removed if this process is gone.
    What the command has started may go on for `linger` seconds after its end.

    `pid` is the guardian's: all that the command starts descends from it. `code` is the exit code, negative
    if a signal has ended the command, None while it runs; `failure` is why it could not be started, or empty.
    `has_ended` is whether all that it started has ended. `report` is a descriptor that can be read when
    `read_report` has something to do.
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
            raise LaunchError("Launching works only on Linux.")
        self.code: int | None = None
        self.failure, self.has_ended = "", False
        # A descriptor that is closed must not be written to: its number is used again.
        self._lock = threading.RLock()  # a signal can come while another is dealt with
        self._unread = b""
        control, self._control = os.pipe()
        self.report, report = os.pipe()
        words = [str(os.getpid()), str(control), str(report), logs, str(linger), *command]
        try:
            with nullcontext() if output is None else output.open("ab") as file:
                self._process = subprocess.Popen(
                    # In a session of its own: Jupyter interrupts the whole process group of a kernel.
                    [sys.executable, "-I", "-S", guardian.__file__, *words],
                    env=dict(environment),
                    cwd=folder,
                    pass_fds=(control, report),
                    stdin=None if has_input else subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
        except BaseException as error:  # an interrupt, too
            self._close()
            if isinstance(error, OSError | ValueError):
                raise LaunchError(f"{command[0]} cannot be started: {error}.") from None
            raise
        finally:
            os.close(control)
            os.close(report)
        self.pid = self._process.pid

    def read_report(self) -> None:
        """Read what the guardian has to say, and wait for it if that is nothing."""
        read = os.read(self.report, 4096)
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
            os.close(self.report)


class RunFolder:
    """A folder that goes with its object, or at the latest with this process.

    Folders of this user whose processes were killed go when another one is made. The lock tells them apart
    also if processes of several containers share the place.
    """

    def __init__(self) -> None:
        try:
            _remove_abandoned(Path(tempfile.gettempdir()))
            with ExitStack() as undo:
                self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
                undo.callback(shutil.rmtree, self.path, ignore_errors=True)
                new = self.path / f"{_LOCK}.new"
                self._lock = os.open(new, os.O_CREAT | os.O_RDWR, 0o600)
                undo.callback(os.close, self._lock)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                new.rename(self.path / _LOCK)  # so that it is never seen without being locked
                undo.pop_all()
        except OSError as error:
            raise LaunchError(f"The command's output cannot be stored: {error}.") from None
        self._remove = weakref.finalize(self, _remove, self.path, self._lock, os.getpid())

    def keep(self) -> Path:
        """Leave it where it is; return its path."""
        if self._remove.detach():
            with suppress(OSError):  # somebody has removed it
                (self.path / _LOCK).unlink()
            os.close(self._lock)
        return self.path

    def remove(self) -> None:
        """Remove it now, unless it is kept: an error can hold its object for long."""
        self._remove()


def _remove(folder: Path, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # a child that was forked has the object as well
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_abandoned(place: Path) -> None:
    for folder in place.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another user's, kept, or in use
            if folder.lstat().st_uid != os.getuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def free_ports(count: int) -> Sequence[int]:
    """Return ports of this host that nobody listens on now, and that its kernel gives to no socket by itself.

    The kernel gives out those of a range (ip(7), `ip_local_port_range`), and others take dozens of them: one
    could be in their hands before a rank listens there.
    """
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
        first, last = map(int, text.split())
    except (OSError, ValueError):
        first, last = 32768, 60999  # Linux's own
    others = [*range(20000, first), *range(last + 1, 1 << 16)]  # below 20000 are many servers' own ports
    # Not with the user's random numbers: after the same seed, two notebooks would have the same ports.
    some = SystemRandom().sample(others, min(len(others), 20 * count))
    with ExitStack() as open_sockets:
        found: list[int] = []
        for port in (*some, *[0] * count):  # 0: one that the kernel gives, where it gives out all
            if len(found) < count:
                one = open_sockets.enter_context(socket.socket())
                with suppress(OSError):
                    one.bind(("", port))
                    found.append(one.getsockname()[1])
        return found


def how_it_ended(code: int, failure: str) -> str:
    """Say how a command has ended, given its exit code, and why it could not be started."""
    if not code:
        return "done"
    if failure:
        return f"could not be started: {failure}"
    if code > 0:
        return f"failed with exit code {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:  # real-time signals have no names
        return f"ended by signal {-code}"


class Causes:
    """What of the machine can make a command fail whose output goes to a folder, from its start on."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._oom_kills = folder, _oom_kills()

    def find(self, codes: Sequence[int | None], console: str = "") -> list[str]:
        """Return a clause for each that has come up since, if a process of the command has failed.

        `codes` are their exit codes. `console` is what its launcher has written, which names the signal that
        has ended a rank.
        """
        found: list[str] = []
        if not any(codes):
            return found
        was_killed = not {-signal.SIGKILL, 128 + signal.SIGKILL}.isdisjoint(codes)
        was_killed = was_killed or "SIGKILL" in console or "return code = -9" in console
        if was_killed and _oom_kills() > self._oom_kills:
            found.append("the system's out-of-memory killer has ended a process")
        with suppress(OSError):
            if not shutil.disk_usage(self._folder).free:
                found.append(f"no space is left for its output in {self._folder}")
        return found


def _oom_kills() -> int:
    """Return how often the out-of-memory killer has ended a process on this machine (Linux, /proc/vmstat)."""
    try:
        return int(Path("/proc/vmstat").read_text().partition("\noom_kill ")[2].partition("\n")[0] or 0)
    except OSError:
        return 0
