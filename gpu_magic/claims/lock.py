"""The locks behind claims and turns, which the system's kernel releases however a process ends.

A claim's lock is a POSIX record lock (fcntl(2)): it belongs to one process, a forked child does not get it,
and F_GETLK tells anybody who may read the file which process holds it. It has one trap: it is released as
soon as its process closes any descriptor of the file, so a process never opens its own claims again.

Processes take turns by an flock(2), which needs no permission to write.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import time
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN, Unknown

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["holder", "lock", "turn"]

# `struct flock` on Linux with 64 bits: type, whence, start, length, process.
_FLOCK = struct.Struct("hhqqi4x")
_LOOK_AGAIN = 0.002


def lock(file: int) -> None:
    """Lock a new file for this process, until it is closed or the process ends.

    The flock besides it keeps programs that tidy up old files away from it (tmpfiles.d(5), "Age").
    """
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def holder(file: int) -> int | Unknown | None:
    """Return the process that has locked a file; UNKNOWN for one out of sight, None where nobody has.

    It is asked what keeps a reader out. That is a lock for writing, which takes the permission to write:
    others can't lock a file so that it seems to be its owner's.
    """
    asked = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
    if kind == fcntl.F_UNLCK:
        return None
    return pid if pid > 0 else UNKNOWN  # 0: in another PID namespace, of another container


@contextlib.contextmanager
def turn(folder: int, seconds: float) -> Iterator[None]:
    """Run a block while no other process runs one, or without that after so many seconds.

    Whoever keeps the lock, or stops while having it, delays others and no more: what is done in the block has
    to be right without it, too.
    """
    until = time.monotonic() + seconds
    is_locked = is_impossible = False
    while not (is_locked or is_impossible):
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_locked = True
        except BlockingIOError:
            if time.monotonic() >= until:
                break
            time.sleep(_LOOK_AGAIN)
        except OSError:  # a file system without such locks
            is_impossible = True
    try:
        yield
    finally:
        if is_locked:
            fcntl.flock(folder, fcntl.LOCK_UN)  # and not by its end: a forked child may share the descriptor
