"""The folder in which the processes of all users find each other's claims.

All of them have to agree on it, so it follows from the machine: it is in /run/lock where everybody can write
there, else in /tmp. /run/lock is in memory, not private to a service (systemd's PrivateTmp), and not aged.
GPU_MAGIC_CLAIMS names another folder, or is `off`.

Like /tmp it is "sticky": everybody can make files in it, and only their owner, and that of the folder, can
remove them. What others have put there is not trusted: no link is followed, no file of theirs is written to.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Access", "NoFolder"]

_BASES = ("/run/lock", "/tmp")  # noqa: S108 - a folder for all users is what is wanted
_NAME = "gpu_magic-claims"
_SHARED = stat.S_ISVTX | stat.S_IWOTH | stat.S_IXOTH
_SHARED_MODE = 0o1777
_BEING_MADE = 1.0  # seconds after which a folder is not opened to all users any more by whoever makes it
_LOOK_AGAIN = 0.005


class NoFolder(Exception):  # noqa: N818 - a reason, and no failure: GPUs can be chosen without claims
    """Claims can't be shared here: why, as a clause; empty where nobody wants it, or nobody has claimed."""


class Access:
    """The access of one process to the folder, which a forked child of it does not have.

    Parameters
    ----------
    is_shared
        Whether it has one. A simulation of one process has none.

    """

    def __init__(self, *, is_shared: bool = True) -> None:
        self._is_shared = is_shared and sys.platform == "linux"
        self.pid = os.getpid()

    @contextmanager
    def folder(self, *, make: bool = False) -> Iterator[int]:
        """Run a block with a descriptor of the folder; `make` it where it is not there.

        Raises
        ------
        NoFolder
            There is none that can be used.

        """
        if not self._is_shared or os.getpid() != self.pid:
            raise NoFolder
        folder = _open_folder(make=make)
        try:
            yield folder
        finally:
            os.close(folder)


def _open_folder(*, make: bool) -> int:
    """Return a descriptor of the folder.

    Parameters
    ----------
    make
        Make it where it is not there.

    Raises
    ------
    NoFolder
        It is not there, can't be made, or is not one that all users can share.

    """
    named = os.environ.get("GPU_MAGIC_CLAIMS", "")
    if named == "off":
        raise NoFolder
    path = named or os.path.join(_base(), _NAME)  # noqa: PTH118
    is_new = make and _make(path)
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NoFolder from None
    except OSError as error:
        raise NoFolder(f"{path} can't be opened ({error.strerror})") from None
    try:
        if is_new:
            os.fchmod(folder, _SHARED_MODE)  # what mkdir is given goes through the umask
        if _is_shared(folder) or (make and _gets_shared(folder)):
            return folder
    except BaseException:
        os.close(folder)
        raise
    os.close(folder)
    raise NoFolder(f"{path} is not open to all users; its owner can change that: chmod 1777")


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


def _make(path: str) -> bool:
    """Make the folder; return False where it is there already."""
    try:
        os.mkdir(path)  # noqa: PTH102
    except FileExistsError:
        return False
    except OSError as error:
        raise NoFolder(f"{path} can't be made ({error.strerror})") from None
    return True


def _is_shared(folder: int) -> bool:
    """Return whether all users can use a folder."""
    return os.fstat(folder).st_mode & _SHARED == _SHARED


def _gets_shared(folder: int) -> bool:
    """Return whether a folder that is being made is opened to all users within a second."""
    until = time.monotonic() + _BEING_MADE
    while abs(time.time() - os.fstat(folder).st_ctime) < _BEING_MADE and time.monotonic() < until:
        time.sleep(_LOOK_AGAIN)
        if _is_shared(folder):
            return True
    return False
