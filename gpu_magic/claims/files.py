"""The files of claims: one for each device that a process has chosen, which that process keeps locked.

A file's name has the device's UUID. Whose it is and since when, the file system says; whether its process
lives and which that is, the lock. What is written in it, a notebook's name, is its owner's word.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from typing import TYPE_CHECKING

from gpu_magic.claims.lock import holder, lock
from gpu_magic.devices.claim import Claim
from gpu_magic.devices.owner import owner_name
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["publish", "read", "withdraw"]

_NAME = re.compile(r"([A-Za-z]+-[0-9A-Za-z-]{1,80})\.[0-9a-f]{16}")
_DRAFT = "."  # before the name of a file that is not finished
_ABANDONED = 60.0  # seconds after which a draft is one whose process has ended
_LONGEST_FILE = 1024  # bytes
_LONGEST_NAME = 60  # characters
_MOST = 4096  # files that are looked at
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAKE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE = 0o644  # others read it

# The files of this process, which it must not open again: see `lock`.
_ours: set[str] = set()


def publish(folder: int, uuid: str, notebook: str) -> tuple[str, int]:
    """Make a claim that all users can see; return its file's name, and the descriptor that keeps it.

    It is locked before it has its name, so that one that is found unlocked has lost its process.

    Raises
    ------
    OSError
        The folder can't be written to, or is full; nothing is left there.

    """
    name = f"{uuid}.{os.urandom(8).hex()}"
    draft = f"{_DRAFT}{name}"
    file = os.open(draft, _MAKE, _MODE, dir_fd=folder)
    try:
        os.fchmod(file, _MODE)  # whatever the umask is
        os.write(file, shortened(notebook, _LONGEST_NAME).encode())
        lock(file)
        _ours.add(name)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        os.close(file)
        _ours.discard(name)
        raise
    return name, file


def withdraw(folder: int | None, name: str, file: int) -> None:
    """End a claim of this process; its file stays behind where the folder can't be used any more."""
    if folder is not None:
        with contextlib.suppress(OSError):  # somebody has tidied up
            os.unlink(name, dir_fd=folder)
    os.close(file)
    _ours.discard(name)


def read(folder: int) -> Iterator[tuple[str, Claim]]:
    """Yield the claims of other processes, each behind the UUID of its device.

    Files that this user's ended processes have left are removed.
    """
    for name in os.listdir(folder)[:_MOST]:
        if name.startswith(_DRAFT):
            _remove_abandoned(folder, name)
        elif name not in _ours and (match := _NAME.fullmatch(name)):
            with contextlib.suppress(OSError):  # it has ended meanwhile, or is something else
                if claim := _read(folder, name):
                    yield match[1], claim


def _read(folder: int, name: str) -> Claim | None:
    """Return the claim of a file; None where that is none, or its process has ended."""
    file = os.open(name, _OPEN, dir_fd=folder)
    try:
        found = os.fstat(file)
        # Another name for a file is a claim that its owner has not made.
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            return None
        pid = holder(file)
        if pid is None:
            if found.st_uid == os.geteuid():
                os.unlink(name, dir_fd=folder)
            return None
        said = os.read(file, _LONGEST_FILE).decode("utf-8", "replace")
        return Claim(owner_name(found.st_uid), found.st_mtime, pid, shortened(said, _LONGEST_NAME))
    finally:
        os.close(file)


def _remove_abandoned(folder: int, draft: str) -> None:
    with contextlib.suppress(OSError):
        found = os.stat(draft, dir_fd=folder, follow_symlinks=False)
        if found.st_uid == os.geteuid() and time.time() - found.st_mtime > _ABANDONED:
            os.unlink(draft, dir_fd=folder)
