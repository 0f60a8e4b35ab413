"""Refuses what a followed step would do outside of this process: write files, run commands, connect.

Python tells its audit hooks of each such thing before it is done (PEP 578), whichever library asks for it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from gpu_magic.frameworks.prediction import NotFollowed
from gpu_magic.frameworks.shadow.code import is_users_file
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = ["Refusals", "refuse", "refusing"]

_LONGEST = 60  # characters of a path
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_IMPORT = "<frozen importlib._bootstrap>"
_local = threading.local()
_installed: list[bool] = []


class Refusals:
    """What was refused.

    The user's code can take the error that is raised for it; what it does then is not what it would do.

    Parameters
    ----------
    runner
        The file that runs the step: the user's lines are looked for below it.

    """

    def __init__(self, runner: str) -> None:
        self._runner = runner
        self._first: NotFollowed | None = None
        self._where: TracebackType | None = None
        self.variables: dict[Any, str | None] = {}  # of the environment, as they were before they were set

    def take(self) -> NotFollowed | None:
        """Return the first error that was raised, with the user's line; and let go of it."""
        error, self._first = self._first, None
        if error is not None:
            error.__traceback__, self._where = self._where, None
        return error

    def check(self) -> None:
        """Raise what was raised already, where the user's code has taken it."""
        if (error := self.take()) is not None:
            raise error

    def note(self, error: NotFollowed, frame: FrameType | None) -> None:
        """Remember an error that is raised in a frame, and the user's innermost line there."""
        if self._first is not None:
            return
        self._first = error
        while frame is not None and not is_users_file(name := frame.f_code.co_filename):
            frame = None if name == self._runner else frame.f_back
        if frame is not None:
            self._where = TracebackType(None, frame, frame.f_lasti, frame.f_lineno)


def refuse(what: str) -> NoReturn:
    """Refuse something: raise NotFollowed, and remember it where the user's code takes that."""
    error = NotFollowed(what)
    refusals = getattr(_local, "refusals", None)
    if refusals is not None:
        refusals.note(error, sys._getframe(1))  # noqa: SLF001
    raise error


@contextlib.contextmanager
def refusing() -> Iterator[Refusals]:
    """Refuse in this thread, until the block ends, what reaches outside of this process.

    Files can be read, and modules imported; their compiled code is not written then. Variables of the
    environment that this thread sets are put back.
    """
    if not _installed:  # Python removes none
        _installed.append(True)
        sys.addaudithook(_look)
    writes_none = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    refusals = _local.refusals = Refusals(sys._getframe(2).f_code.co_filename)  # noqa: SLF001
    try:
        yield refusals
    finally:
        _local.refusals = None
        sys.dont_write_bytecode = writes_none
        for name, value in refusals.variables.items():
            _set_variable(os.fsdecode(name), value)


def _look(event: str, args: tuple[Any, ...]) -> None:
    refusals = getattr(_local, "refusals", None)
    if refusals is None:
        return
    if event in ("os.putenv", "os.unsetenv") and not _is_import(sys._getframe(1)):  # noqa: SLF001
        refusals.variables.setdefault(args[0], os.environ.get(os.fsdecode(args[0])))
    describe = _REFUSED.get(event)
    if describe is None:
        return
    what = describe(*args)
    if what is not None and not _is_import(sys._getframe(1)):  # noqa: SLF001
        refuse(what)


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
        os.unsetenv(name)
    else:
        os.environ[name] = value


def _is_import(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT:
            return True
        frame = frame.f_back
    return False


def _open(path: object, mode: object, flags: object) -> str | None:
    writes = bool(set(mode) & set("wax+")) if isinstance(mode, str) else int(flags or 0) & _WRITING  # type: ignore[call-overload]
    return f"it would write to {_name(path)}" if writes and _name(path) != os.devnull else None


def _database(path: object, *more: object) -> str | None:
    del more
    return None if _name(path) == ":memory:" else f"it would open the database {_name(path)}"


def _name(path: object) -> str:
    return shortened(os.fsdecode(path) if isinstance(path, bytes) else str(path), _LONGEST)


def _of(verb: str) -> Callable[..., str]:
    """Return what describes an event whose first argument is a path."""
    return lambda path="", *more: f"it would {verb} {_name(path)}"  # noqa: ARG005


def _always(what: str) -> Callable[..., str]:
    return lambda *args: f"it would {what}"  # noqa: ARG005


def _command(program: object, args: object = (), *more: object) -> str:
    del more
    words = [args] if isinstance(args, str | bytes) else list(args) if isinstance(args, tuple | list) else []
    return f"it would run {_name(words[0] if words else program)}"


# Python's events, https://docs.python.org/3/library/audit_events.html, and what is said of them.
_REFUSED: dict[str, Callable[..., str | None]] = {
    "open": _open,
    "os.chdir": _always("change the working folder"),
    "os.chmod": _of("change"),
    "os.chown": _of("change"),
    "os.link": _of("link"),
    "os.mkdir": _of("make"),
    "os.remove": _of("remove"),
    "os.removexattr": _of("change"),
    "os.rename": _of("rename"),
    "os.rmdir": _of("remove"),
    "os.setxattr": _of("change"),
    "os.symlink": _of("link"),
    "os.truncate": _of("write to"),
    "os.utime": _of("change"),
    "shutil.copyfile": _of("copy"),
    "shutil.move": _of("move"),
    "shutil.rmtree": _of("remove"),
    "sqlite3.connect": _database,
    "os.system": _of("run"),
    "os.exec": _of("run"),
    "os.posix_spawn": _of("run"),
    "os.spawn": _always("start a process"),
    "os.fork": _always("start a process"),
    "os.forkpty": _always("start a process"),
    "pty.spawn": _always("start a process"),
    "subprocess.Popen": _command,
    "os.kill": _always("send a signal"),
    "os.killpg": _always("send a signal"),
    "socket.connect": _always("connect to another process"),
    "socket.bind": _always("open a port"),
    "socket.sendto": _always("send to another process"),
    "socket.sendmsg": _always("send to another process"),
    "urllib.Request": _of("ask for"),
    "http.client.connect": _always("connect to another process"),
    "ftplib.connect": _always("connect to another process"),
    "smtplib.connect": _always("connect to another process"),
    "syslog.syslog": _always("write to the system's log"),
}
