"""A process under a guardian, the folder for its output, free ports for its ranks, and how it ended."""

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

__all__ = ["LOST", "Causes", "Guarded", "RunFolder", "free_ports", "how_it_ended", "is_full"]

LOST = "lost because its guardian was killed: its processes may still run"

_PREFIX = "gpu_magic-"
_LOCK = "lock"  # a file that is locked while the folder is in use; a kept folder has no such file


class Guarded:
    """A command, and its guardian, which ends all processes that the command has started.

    `output` is the file for the command's output. None: the output of this process. With `has_input`, the
    command reads this process's input. The guardian removes the folder `logs` if this process has ended. The
    command's other processes may run for `linger` seconds after the command's end.

    `pid` is the pid of the guardian's keeper, from which all processes of the command descend. `code` is the
    exit code: negative if a signal has ended the command, None while the command runs. `failure` is why the
    command could not start, or empty. `has_ended` is whether all processes of the command have ended, or
    `is_lost`: the guardian and its keeper were killed, so some may still run. `report` is a file descriptor
    that is readable when `read_report` has something to read.
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
        self.failure, self.has_ended, self.is_lost = "", False, False
        self._may_run = False  # whether the guardian has begun to start the command, and not reported its end
        # Do not write to a descriptor after it is closed, because its number is used again.
        self._lock = threading.RLock()  # reentrant, because a signal can arrive in a signal handler
        self._unread = b""
        control, self._control = os.pipe()
        self.report, report = os.pipe()
        words = [str(os.getpid()), str(control), str(report), logs, str(linger), *command]
        try:
            with nullcontext() if output is None else output.open("ab") as file:
                self._process = subprocess.Popen(
                    # In a new session, because Jupyter interrupts a kernel's whole process group.
                    [sys.executable, "-I", "-S", guardian.__file__, *words],
                    env=dict(environment),
                    cwd=folder,
                    pass_fds=(control, report),
                    stdin=None if has_input else subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
        except BaseException as error:  # also an interrupt
            self._close()
            if isinstance(error, OSError | ValueError):
                raise LaunchError(f"{command[0]} cannot be started: {error}.") from None
            raise
        finally:
            os.close(control)
            os.close(report)
        self.pid = self._process.pid

    def read_report(self) -> None:
        """Read the guardian's report. If the report has ended, wait for the guardian's keeper."""
        read = os.read(self.report, 4096)
        *lines, self._unread = (self._unread + read).split(b"\n")
        for line in lines:
            what, *value = line.decode().split()
            if what == "exited":
                self.code = int(value[0])
            elif what == "failed":
                self.code, self.failure = 127, os.strerror(int(value[0]))
            self._may_run = what in ("starting", "exited")
        if not read:  # the guardian and its keeper have ended
            self.is_lost = self._may_run
            if self.code is None or self.is_lost:
                self.code = -signal.SIGKILL
            self._process.wait()
            self._close()

    def interrupt(self) -> None:
        """Interrupt the command as Ctrl-C does. Remaining processes get TERM after 2 s, KILL after 5 s."""
        self._send(b"i")

    def end(self) -> None:
        """Send TERM to all processes of the command, and KILL 3 s later."""
        self._send(b"t")

    def _send(self, what: bytes) -> None:
        with self._lock, suppress(OSError):
            if not self.has_ended:
                os.write(self._control, what)

    def _close(self) -> None:
        with self._lock:
            self.has_ended = True
            os.close(self._control)
            os.close(self.report)


class RunFolder:
    """A folder that is removed with its object, or when this process ends.

    A new `RunFolder` first removes the user's folders whose processes were killed. The lock shows which
    folders are in use, also if several containers share the temporary folder.
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
                new.rename(self.path / _LOCK)  # so that no process sees it unlocked
                undo.pop_all()
        except OSError as error:
            raise LaunchError(f"The command's output cannot be stored: {error}.") from None
        self._remove = weakref.finalize(self, _remove, self.path, self._lock, os.getpid())

    def keep(self) -> Path:
        """Keep the folder. Return its path."""
        if self._remove.detach():
            with suppress(OSError):  # the file was removed
                (self.path / _LOCK).unlink()
            os.close(self._lock)
        return self.path

    def remove(self) -> None:
        """Remove the folder now, unless it is kept, because an error can keep the object alive."""
        self._remove()


def _remove(folder: Path, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # a forked child also has the object
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_abandoned(place: Path) -> None:
    # The place can have thousands of other files, which `glob` takes ten times as long to compare.
    names: list[str] = []
    with suppress(OSError):  # a folder that nobody may list
        names = os.listdir(place)  # noqa: PTH208
    for name in names:
        if not name.startswith(_PREFIX):
            continue
        folder = place / name
        with suppress(OSError):  # another user's, kept, or in use
            if folder.lstat().st_uid != os.getuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_nlink:  # otherwise the folder was kept, or removed, meanwhile
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def free_ports(count: int) -> Sequence[int]:
    """Return free ports of this host, outside the range from which Linux assigns ports.

    Linux assigns the ports of a range to sockets (ip(7), `ip_local_port_range`). Another program could get
    such a port before a rank listens on it.
    """
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
        first, last = map(int, text.split())
    except (OSError, ValueError):
        first, last = 32768, 60999  # the default of Linux
    others = [*range(20000, first), *range(last + 1, 1 << 16)]  # many servers use ports below 20000
    # Not with `random`, because after the same seed two notebooks would get the same ports.
    some = SystemRandom().sample(others, min(len(others), 20 * count))
    with ExitStack() as open_sockets:
        found: list[int] = []
        for port in (*some, *[0] * count):  # 0: a port that Linux assigns, if the others are not enough
            if len(found) < count:
                one = open_sockets.enter_context(socket.socket())
                with suppress(OSError):
                    one.bind(("", port))
                    found.append(one.getsockname()[1])
        return found


def how_it_ended(code: int, failure: str) -> str:
    """Return how a command has ended, given its exit code, and why it could not start."""
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
    """Causes of a command's failure on this machine: too little memory, or no space in its output folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._oom_kills = folder, _oom_kills()

    def find(self, codes: Sequence[int | None], console: str = "") -> list[str]:
        """Return a clause for each cause since the start, if a process of the command has failed.

        `codes` are the exit codes of the processes. `console` is the launcher's output, which names the
        signal that has ended a rank.
        """
        found: list[str] = []
        if not any(codes):
            return found
        was_killed = not {-signal.SIGKILL, 128 + signal.SIGKILL}.isdisjoint(codes)
        was_killed = was_killed or "SIGKILL" in console or "return code = -9" in console
        if was_killed and _oom_kills() > self._oom_kills:
            found.append("the system's out-of-memory killer has ended a process")
        if is_full(self._folder):
            found.append(f"no space is left for its output in {self._folder}")
        return found


def is_full(folder: Path) -> bool:
    """Return whether no space is left on the disk of a folder."""
    try:
        return not shutil.disk_usage(folder).free
    except OSError:
        return False


def _oom_kills() -> int:
    """Return how often the out-of-memory killer has ended a process on this machine (Linux, /proc/vmstat)."""
    try:
        return int(Path("/proc/vmstat").read_text().partition("\noom_kill ")[2].partition("\n")[0] or 0)
    except OSError:
        return 0
