"""Who is behind a process number: its owner and a name that people recognise."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePath
from typing import NamedTuple, Protocol

from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.text import shortened

__all__ = ["NOBODY_KNOWN", "Process", "ProcessTable", "Processes", "name_text"]

# The initial PID namespace's inode is a constant of Linux (PROC_PID_INIT_INO, linux/proc_ns.h).
_INITIAL_NAMESPACE = "pid:[4026531836]"
_LONGEST_NAME = 40
_MOST_KEPT = 4096


class Process(NamedTuple):
    """A process as people know it; see `GpuProcess` for the fields."""

    name: str | Unknown
    owner: str | Unknown
    mine: bool = False


NOBODY_KNOWN = Process(UNKNOWN, UNKNOWN)


class Processes(Protocol):
    """Where owners and names come from: /proc, or a simulated machine's own list."""

    def look_up(self, pid: int) -> Process: ...


class ProcessTable:
    """Owners and names from /proc.

    The driver reports the host's process numbers. Inside a container they are not ours: the number
    may be absent or somebody else's, so there every process is UNKNOWN rather than misattributed.

    The owner is the effective one (`os.stat` of /proc/PID, 2 µs); psutil's real one costs 15 times
    that. Names are kept for as long as /proc/PID is the same inode, which ends with the process.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[tuple[int, float, int, int], Process]] = {}
        self._owners: dict[int, str] = {}
        try:
            self._numbers_are_ours = str(Path("/proc/self/ns/pid").readlink()) == _INITIAL_NAMESPACE
        except OSError:
            self._numbers_are_ours = False

    def look_up(self, pid: int) -> Process:
        """Return what is known of a process; UNKNOWN for what is not, or when it has gone."""
        if not self._numbers_are_ours:
            return NOBODY_KNOWN
        try:
            seen = os.stat(f"/proc/{pid}")  # noqa: PTH116 - pathlib's costs twice the call itself
        except OSError:
            return NOBODY_KNOWN
        key = seen.st_ino, seen.st_ctime, seen.st_uid, os.getpid()  # in a fork others are "ours"
        kept = self._seen.get(pid)
        if kept is None or kept[0] != key:
            kept = key, Process(_name(pid), self._owner(seen.st_uid), _is_ours(pid))
            if len(self._seen) >= _MOST_KEPT:  # a kernel can watch for weeks; pids come and go
                self._seen.clear()
            self._seen[pid] = kept
        return kept[1]

    def _owner(self, uid: int) -> str:
        owner = self._owners.get(uid)
        if owner is None:
            import pwd

            try:
                owner = name_text(pwd.getpwuid(uid).pw_name)
            except KeyError:
                owner = f"uid {uid}"
            self._owners[uid] = owner
        return owner


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
    program = PurePath(arguments[0]).name
    if not program:
        return _comm(pid)
    if program.startswith("python"):
        return name_text(_python_program(arguments[1:]) or program)
    return name_text(program)


def _python_program(arguments: list[str]) -> str:
    """Find what `python …` runs: a module or a script. The rest of the command line is private.

    Short options can be bundled (`-Ic CODE`, `-mMODULE`): those before "c", "m", "W" or "X" take no value.
    """
    rest = iter(arguments)
    for argument in rest:
        if argument == "--check-hash-based-pycs":
            next(rest, "")
        elif argument.startswith("--"):
            continue
        elif not argument.startswith("-"):
            return PurePath(argument).name
        elif match := re.match(r"-[^cmWX]*([cmWX])(.*)", argument, re.DOTALL):
            value = match[2] or next(rest, "")
            if match[1] == "m":
                return "ipykernel" if value == "ipykernel_launcher" else value
            if match[1] == "c":
                return ""
        elif argument == "-":
            return ""
    return ""


def _comm(pid: int) -> str | Unknown:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return name_text(file.read().strip()) or UNKNOWN
    except OSError:
        return UNKNOWN


def _is_ours(pid: int) -> bool:
    """Tell whether a process is this one or a descendant (a DataLoader's worker, say)."""
    me = os.getpid()
    while pid > 1:
        if pid == me:
            return True
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
                # The program's name stands in parentheses and may hold any character, ")" too.
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return False
