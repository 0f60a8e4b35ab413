"""The folder with the files of a launch: what its ranks write, and a cell's script."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

from gpu_magic.errors import LaunchError

__all__ = ["RunFolder"]

_PREFIX = "gpu_magic-"
_LOCK = "lock"  # a file that is locked for as long as somebody wants the folder; one that is kept has none


class RunFolder:
    """A folder that goes with its object, or at the latest with this process.

    Folders of this user whose processes were killed go when another one is made. The lock tells them apart
    also where processes of several containers share the place.

    Raises
    ------
    LaunchError
        There is no place for it.

    """

    def __init__(self) -> None:
        try:
            _remove_abandoned(Path(tempfile.gettempdir()))
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        except OSError as error:
            raise _no_place(error) from None
        try:
            self._lock = _lock(self.path)
        except OSError as error:
            shutil.rmtree(self.path, ignore_errors=True)
            raise _no_place(error) from None
        self._remove = weakref.finalize(self, _remove, self.path, self._lock, os.getpid())

    def keep(self) -> Path:
        """Leave it where it is; return its path."""
        if self._remove.detach():
            with suppress(OSError):  # somebody has removed it
                (self.path / _LOCK).unlink()
            os.close(self._lock)
        return self.path

    def remove(self) -> None:
        """Remove it now, unless it is kept: an error can hold its object for long."""
        self._remove()


def _no_place(error: OSError) -> LaunchError:
    return LaunchError(f"There is no place for the command's output: {error}.")


def _lock(folder: Path) -> int:
    """Lock a new folder; return a descriptor that holds the lock."""
    new = folder / f"{_LOCK}.new"
    lock = os.open(new, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        new.rename(folder / _LOCK)  # so that it is never seen without being locked
    except OSError:
        os.close(lock)
        raise
    return lock


def _remove(folder: Path, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # a child that was forked has the object as well
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_abandoned(place: Path) -> None:
    for folder in place.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another user's, kept, or in use
            if folder.lstat().st_uid != os.getuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
