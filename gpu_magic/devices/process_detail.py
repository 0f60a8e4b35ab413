"""More of a process than its owner and its name: when it was started, whose it is, and its notebook.

Read once for each process that snapshots list, and anew for those that somebody looks at closely.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from gpu_magic.devices.record import record
from gpu_magic.devices.unknown import UNKNOWN, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["UNKNOWN_DETAIL", "ProcessDetail", "age_now", "read_detail", "read_notebook", "read_start"]

_NOTEBOOK = b"JPY_SESSION_NAME="  # jupyter_server gives it to each kernel: the path of its notebook
_PIECE, _MOST_PIECES = 16 << 10, 64  # bytes that are read at once, and how often: 1 MiB of an environment


@record
class ProcessDetail:
    """More about a process.

    Parameters
    ----------
    started
        When it was started, in the clock's ticks since the machine was. With the process's number, it tells a
        process from all others, also from a later one with the same number.
    age
        Seconds since then.
    is_own
        Whether it belongs to the user of this process, and can be named by its number here.
    notebook
        The path of the notebook whose kernel it is, or was started in; empty where there is none, or that is
        not known. Only of one's own: the environment of others is theirs.

    """

    started: int | Unknown = UNKNOWN
    age: float | Unknown = UNKNOWN
    is_own: bool = False
    notebook: str = ""


UNKNOWN_DETAIL = ProcessDetail()


def read_detail(pid: int) -> ProcessDetail:
    """Read what /proc has of a process whose number is one of this PID namespace."""
    started = read_start(pid)
    if started is UNKNOWN:
        return UNKNOWN_DETAIL
    is_own = _is_own(pid)
    return ProcessDetail(started, age_now(started), is_own, read_notebook(pid) if is_own else "")


def age_now(started: int) -> float:
    """Return the seconds since a process was started, given when, as `ProcessDetail` has it."""
    # CLOCK_BOOTTIME, as the kernel's own: it goes on while the machine is suspended.
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK"))


def read_start(pid: int) -> int | Unknown:
    """Return when a process was started; see `ProcessDetail`."""
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


def read_notebook(pid: int) -> str:
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
