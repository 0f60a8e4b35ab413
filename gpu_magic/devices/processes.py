"""The owner and the name of a process, given its number."""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import TYPE_CHECKING

from gpu_magic.devices.owner import owner_name
from gpu_magic.devices.process_detail import (
    UNKNOWN_DETAIL,
    ProcessDetail,
    age_now,
    read_detail,
    read_notebook,
    read_start,
)
from gpu_magic.devices.python_line import read_python_line
from gpu_magic.devices.record import record
from gpu_magic.devices.status import GpuProcess
from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Container

__all__ = [
    "UNKNOWN_PROCESS",
    "Process",
    "ProcessTable",
    "descends_from",
    "gpu_process",
    "is_mine",
    "name_text",
    "numbers_are_ours",
]

# The initial PID namespace's inode is a constant of Linux (PROC_PID_INIT_INO, linux/proc_ns.h).
_INITIAL_NAMESPACE = "pid:[4026531836]"
_LONGEST_NAME = 40
_MOST_KEPT = 4096
_MOST_ANCESTORS = 64  # a chain of many others' processes is not to keep anybody busy


@record
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
        return self.stated_age if self.started is UNKNOWN else int(age_now(self.started))


UNKNOWN_PROCESS = Process(UNKNOWN, UNKNOWN)


def gpu_process(pid: int, known: Process, memory: int | Unknown) -> GpuProcess:
    """Return a process with its memory on a GPU, in bytes."""
    # By place: `record` takes three times as long for fields that are named or left out.
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
            known = key, _read(pid, found.st_uid)
            if len(self._known) >= _MOST_KEPT:  # a kernel can run for weeks, and processes come and go
                self._known.clear()
            self._known[pid] = known
        return known[1]

    def detail(self, pid: int) -> ProcessDetail:
        """Return more about a process: UNKNOWN for what is not known, or when it has gone."""
        return read_detail(pid) if self._numbers_are_ours else UNKNOWN_DETAIL


def _read(pid: int, uid: int) -> Process:
    is_own = uid == os.getuid()
    notebook = read_notebook(pid) if is_own else ""
    return Process(_name(pid), owner_name(uid), is_mine(pid), is_own, notebook, read_start(pid))


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
