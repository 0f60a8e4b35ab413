"""The files by which processes tell all users what they have claimed, each locked by the one that made it.

The file system says who owns a file and since when. The lock says which process holds it, and whether that
process lives. The name begins with the UUID of the device, and so does the text. The next line is the owner's
word.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.claims.lock import holder, lock
from gpu_magic.devices.owner import owner_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.devices.unknown import Unknown

__all__ = ["ClaimFile", "new_name", "publish", "read", "withdraw"]

_NAME = re.compile(r"([A-Za-z]+-[0-9A-Za-z-]{1,80})\.[0-9a-f]{16}")  # a device's UUID, and what is random
_DRAFT = "."  # before the name of a file that is not finished
_ABANDONED = 60.0  # seconds after which a draft is one whose process has ended
_LONGEST_FILE = 8192  # bytes
_MOST = 1024  # files of one user that are looked at: nobody can hide others' claims behind many of their own
_PRIVATE, _READABLE = 0o600, 0o644
_OTHERS_CAN_WRITE = stat.S_IWGRP | stat.S_IWOTH

# The device and the inode of this process's files, which it must not open again: see `lock`.
_ours: set[tuple[int, int]] = set()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ours.clear)  # a child has claimed nothing


class ClaimFile(NamedTuple):
    """A claim of another process.

    Parameters
    ----------
    uuid
        The device.
    uid
        Its owner.
    since
        When it was made, in seconds since the epoch.
    pid
        The process that has made it; UNKNOWN where it can't be seen from here.
    notebook
        What its owner says that it is. It can be anything.

    """

    uuid: str
    uid: int
    since: float
    pid: int | Unknown
    notebook: str

    @property
    def owner(self) -> str:
        """The name of its owner."""
        return owner_name(self.uid)


def new_name(uuid: str) -> str:
    """Return a name for a file that nobody has used."""
    return f"{uuid}.{os.urandom(8).hex()}"


def publish(folder: int, name: str, notebook: str) -> int:
    """Make a file of a new name that all users can read; return the descriptor that keeps it.

    It is locked before others can open it, and before it has its name: one that is found unlocked has lost
    its process.

    Raises
    ------
    OSError
        The folder can't be written to, or is full; nothing is left there.

    """
    uuid, draft = name.rpartition(".")[0], f"{_DRAFT}{name}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(draft, flags, _PRIVATE, dir_fd=folder)
    _ours.add(_identity(os.fstat(file)))
    try:
        lock(file)
        os.write(file, f"{uuid}\n{notebook}".encode())
        os.fchmod(file, _READABLE)  # whatever the umask is
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        withdraw(folder, name, file)
        raise
    return file


def withdraw(folder: int | None, name: str, file: int | None) -> None:
    """Remove a file of this process; it stays behind, unlocked, where the folder can't be used any more.

    Parameters
    ----------
    folder
        The folder.
    name
        The file's.
    file
        The descriptor that keeps it; None where making it was interrupted, so that it is not known.

    """
    identity = None
    with contextlib.suppress(OSError):  # a cell has closed the descriptor, or it is another file's by now
        identity = None if file is None else _identity(os.fstat(file))
    if folder is not None:
        for one in (name, f"{_DRAFT}{name}"):
            with contextlib.suppress(OSError):  # somebody has tidied up
                os.unlink(one, dir_fd=folder)
    if file is not None and identity in _ours:
        os.close(file)
        _ours.discard(identity)


def read(folder: int) -> Iterator[ClaimFile]:
    """Yield the claims of other processes; remove what ended processes of this user have left."""
    seen: Counter[int] = Counter()
    for name in os.listdir(folder):
        match = _NAME.fullmatch(name.removeprefix(_DRAFT))
        if not match:
            continue
        with contextlib.suppress(OSError):  # it has ended meanwhile, or is something else
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            seen[found.st_uid] += 1
            if seen[found.st_uid] > _MOST or not stat.S_ISREG(found.st_mode) or _identity(found) in _ours:
                continue
            if name.startswith(_DRAFT):
                _remove_abandoned(folder, name, found)
            elif file := _read(folder, name, match[1]):
                yield file


def _read(folder: int, name: str, uuid: str) -> ClaimFile | None:
    """Return a claim; None where the file is not one of ours, or its process has ended."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    file = os.open(name, flags, dir_fd=folder)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_mode & _OTHERS_CAN_WRITE:
            return None
        pid = holder(file)
        if pid is None:
            if found.st_uid == os.geteuid():
                os.unlink(name, dir_fd=folder)
            return None
        first, notebook, *_ = (*os.read(file, _LONGEST_FILE).decode("utf-8", "replace").split("\n"), "")
        if first != uuid:  # another name for a file says what its owner has not said
            return None
        # Its owner can set any time but this one.
        return ClaimFile(uuid, found.st_uid, found.st_ctime, pid, notebook)
    finally:
        os.close(file)


def _remove_abandoned(folder: int, draft: str, found: os.stat_result) -> None:
    if found.st_uid == os.geteuid() and time.time() - found.st_mtime > _ABANDONED:
        os.unlink(draft, dir_fd=folder)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
