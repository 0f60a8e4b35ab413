"""The folder in which the processes of all users find each other's claims.

All of them have to agree on it, so it follows from the machine: it is in /run/lock where everybody can write
there, else in /tmp. /run/lock is in memory, not private to a service (systemd's PrivateTmp), and not aged.
GPU_MAGIC_CLAIMS names another folder, or is `off`.

Like /tmp it is "sticky": everybody can make files in it, and only their owner can remove or rename them. What
others have put there is not trusted: no link is followed, and no file of theirs is written to.
"""

from __future__ import annotations

import os
import stat

__all__ = ["NoFolder", "open_folder"]

_BASES = ("/run/lock", "/tmp")  # noqa: S108 - a folder for all users is what is wanted
_NAME = "gpu_magic-claims"
_SHARED = stat.S_ISVTX | stat.S_IWOTH | stat.S_IXOTH
_SHARED_MODE = 0o1777


class NoFolder(Exception):  # noqa: N818 - a reason, and no failure: GPUs can be chosen without claims
    """Claims can't be shared here: why, as a clause; empty where nobody wants it."""


def open_folder() -> int:
    """Return a descriptor of the folder, which is made where it is not there.

    Raises
    ------
    NoFolder
        It can't be made, or is not one that all users can share.

    """
    named = os.environ.get("GPU_MAGIC_CLAIMS", "")
    if named == "off":
        raise NoFolder
    path = named or os.path.join(_base(), _NAME)  # noqa: PTH118
    try:
        os.mkdir(path)  # noqa: PTH102
    except FileExistsError:
        pass
    except OSError as error:
        raise NoFolder(f"{path} can't be made ({error.strerror})") from None
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise NoFolder(f"{path} can't be opened ({error.strerror})") from None
    try:
        _share(folder, path)
    except BaseException:
        os.close(folder)
        raise
    return folder


def _base() -> str:
    """Return the first folder that everybody can make files in, as on every machine of this kind."""
    for base in _BASES:
        try:
            mode = os.stat(base).st_mode  # noqa: PTH116
        except OSError:
            continue
        if stat.S_ISDIR(mode) and mode & _SHARED == _SHARED:
            return base
    raise NoFolder("no folder here is open to all users")


def _share(folder: int, path: str) -> None:
    """See to it that all users can use a folder."""
    found = os.fstat(folder)
    if found.st_mode & _SHARED == _SHARED:
        return
    if found.st_uid != os.geteuid():
        raise NoFolder(f"{path} is not open to all users; an administrator can change that: chmod 1777")
    try:
        os.fchmod(folder, _SHARED_MODE)  # just made: what mkdir is given goes through the umask
    except OSError as error:
        raise NoFolder(f"{path} can't be opened to all users ({error.strerror})") from None
