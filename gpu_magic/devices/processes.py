"""Whose a process is, its name and its notebook, given its number: from /proc."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING

from gpu_magic.devices.python_line import read_python_line
from gpu_magic.devices.status import GpuProcess
from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

__all__ = [
    "UNKNOWN_PROCESS",
    "Process",
    "ProcessTable",
    "descends_from",
    "gpu_process",
    "is_mine",
    "name_text",
    "numbers_are_ours",
    "owner_name",
    "read_process",
    "start_of",
]

# The initial PID namespace's inode is a constant of Linux (PROC_PID_INIT_INO, linux/proc_ns.h).
_INITIAL_NAMESPACE = "pid:[4026531836]"
_LONGEST_NAME = 40
_MOST_KEPT = 4096
_NOTEBOOK = b"JPY_SESSION_NAME="  # jupyter_server gives it to each kernel: the path of its notebook
_PIECE, _MOST_PIECES = 16 << 10, 64  # bytes that are read at once, and how often: 1 MiB of an environment
_MOST_ANCESTORS = 64  # a chain of many others' processes is not to keep anybody busy


@dataclass(frozen=True, slots=True)
class Process:
    """What is known of a process; see `GpuProcess` for the fields."""

    name: str | Unknown
    owner: str | Unknown
    mine: bool = False
    is_own: bool = False
    notebook: str = ""
    started: int | Unknown = UNKNOWN
    stated_age: int | Unknown = UNKNOWN  # where it does not follow from `started`

    @property
    def age(self) -> int | Unknown:
        """Whole seconds since it was started."""
        if self.started is UNKNOWN:
            return self.stated_age
        # CLOCK_BOOTTIME, as the kernel's own: it goes on while the machine is suspended.
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        return int(max(0.0, now - self.started / os.sysconf("SC_CLK_TCK")))


UNKNOWN_PROCESS = Process(UNKNOWN, UNKNOWN)


def gpu_process(pid: int, known: Process, memory: int | Unknown, work: int | Unknown = UNKNOWN) -> GpuProcess:
    """Return a process with its memory on a GPU, in bytes, and its work there, in percent."""
    return GpuProcess(
        pid,
        known.name,
        known.owner,
        memory,
        known.mine,
        known.is_own,
        known.notebook,
        known.started,
        known.age,
        work,
    )


class ProcessTable:
    """Owners and names of processes, from /proc.

    The driver reports the host's process numbers. In a container they are not ours: a number may be absent or
    belong to another process. So there every process is UNKNOWN, rather than attributed to the wrong user.

    The owner is the effective one, from `os.stat` of /proc/PID (2 µs); psutil returns the real one, in 15
    times that. Names and notebooks are kept for as long as /proc/PID is the same inode, which ends with the
    process.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[tuple[int, float, int, int], Process]] = {}
        self._numbers_are_ours = numbers_are_ours()

    def look_up(self, pid: int) -> Process:
        """Return what is known of a process: UNKNOWN for what is not, or when it has gone."""
        if not self._numbers_are_ours:
            return UNKNOWN_PROCESS
        try:
            found = os.stat(f"/proc/{pid}")  # noqa: PTH116 - pathlib's costs twice the call itself
        except OSError:
            return UNKNOWN_PROCESS
        # After a fork other processes are descendants.
        key = found.st_ino, found.st_ctime, found.st_uid, os.getpid()
        known = self._known.get(pid)
        if known is None or known[0] != key:
            known = key, read_process(pid)
            if len(self._known) >= _MOST_KEPT:  # a kernel can run for weeks, and processes come and go
                self._known.clear()
            self._known[pid] = known
        return known[1]


def read_process(pid: int) -> Process:
    """Read what /proc has of a process of this PID namespace; `started` is UNKNOWN when it has ended."""
    try:
        uid = os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116
    except OSError:
        return UNKNOWN_PROCESS
    is_own = _is_own(pid)
    notebook = _notebook(pid) if is_own else ""
    return Process(_name(pid), owner_name(uid), is_mine(pid), is_own, notebook, start_of(pid))


@cache
def owner_name(uid: int) -> str:
    """Return a user's name as it is shown: printable, and not too long; `uid 1234` where there is none."""
    import pwd  # not on Windows

    try:
        return name_text(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return f"uid {uid}"


def numbers_are_ours() -> bool:
    """Return whether the driver's process numbers are this process's: in a container they are the host's."""
    try:
        return os.readlink("/proc/self/ns/pid") == _INITIAL_NAMESPACE  # noqa: PTH115
    except OSError:
        return False


def name_text(name: str) -> str:
    """Return a process's or a user's name as it is shown: printable, and not too long."""
    return shortened(name, _LONGEST_NAME)


def _name(pid: int) -> str | Unknown:
    """Name a process by its script or module where Python runs it, else by its program."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            arguments = file.read(8192).decode("utf-8", "replace").split("\0")
    except OSError:
        return UNKNOWN
    program = arguments[0].rpartition("/")[2]
    if not program:
        return _comm(pid)
    if program.startswith("python"):
        return name_text(_python_program(arguments[1:]) or program)
    return name_text(program)


def _python_program(arguments: list[str]) -> str:
    """Return the module or the script that `python …` runs. The rest of the command line is private."""
    line = read_python_line(arguments)
    if line.kind == "module":
        return "ipykernel" if line.name == "ipykernel_launcher" else line.name
    return PurePath(line.name).name


def _comm(pid: int) -> str | Unknown:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return name_text(file.read().strip()) or UNKNOWN
    except OSError:
        return UNKNOWN


def is_mine(pid: int) -> bool:
    """Return whether a process is this one or a descendant (a worker of a DataLoader, say)."""
    me = os.getpid()
    return pid == me or (_has_children() and descends_from(pid, (me,)))


def descends_from(pid: int, ancestors: Container[int]) -> bool:
    """Return whether a process was started by one of others, or by one that these have started.

    Of a process with very many ancestors the nearest ones are looked at.
    """
    for _ in range(_MOST_ANCESTORS):
        if pid <= 1:
            break
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
                # The program's name is in parentheses and can hold any character, ")" too.
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
        if pid in ancestors:
            return True
    return False


def _has_children() -> bool:
    """Return whether this process has child processes: one system call, which leaves them as they are."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def start_of(pid: int) -> int | Unknown:
    """Return when a process was started, as `GpuProcess` has it."""
    try:
        # The name before it is in parentheses and can hold anything. This is the 22nd field in proc(5).
        fields = b"".join(_pieces(f"/proc/{pid}/stat")).rpartition(b")")[2].split()
        state, started = fields[0], int(fields[19])
    except (OSError, ValueError, IndexError):
        return UNKNOWN
    return UNKNOWN if state in (b"Z", b"X") else started  # ended, and only its parent has not asked yet


def _is_own(pid: int) -> bool:
    """Return whether a process's user IDs are all those of this process's user.

    The owner of /proc/PID is not asked: that is root for a process that can't be dumped.
    """
    try:
        with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123
            line = next(line for line in file if line.startswith(b"Uid:"))
    except (OSError, StopIteration):
        return False
    return set(map(int, line.split()[1:])) == {os.getuid()}


def _notebook(pid: int) -> str:
    """Return the path of a process's notebook; empty where there is none, or that is not ours to read."""
    try:
        variables = b"".join(_pieces(f"/proc/{pid}/environ")).split(b"\0")
    except OSError:
        return ""
    paths = [one.removeprefix(_NOTEBOOK) for one in variables if one.startswith(_NOTEBOOK)]
    return paths[0].decode("utf-8", "replace") if paths else ""


def _pieces(path: str) -> Iterator[bytes]:
    """Yield what a file of /proc has, which takes a quarter of the time that `open` and a large buffer do."""
    file = os.open(path, os.O_RDONLY)
    try:
        for _ in range(_MOST_PIECES):
            if not (piece := os.read(file, _PIECE)):
                return
            yield piece
    finally:
        os.close(file)
