"""The folder with the files of a launch: what its ranks write, and a cell's script."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

from gpu_magic.errors import LaunchError
from gpu_magic.launching.guardian import read_stat

__all__ = ["RunFolder"]

_KEPT = ".kept"  # a file in those that are to stay
# The name of one says whose it is: the process's number, and its start in clock ticks (proc_pid_stat(5)).
_OWNED = re.compile(r"gpu_magic-(\d+)-(\d+)-")


class RunFolder:
    """A folder that goes with its object, or at the latest with this process.

    The folders of this user's processes that were killed go, too.

    Raises
    ------
    LaunchError
        There is no place for it.

    """

    def __init__(self) -> None:
        pid = os.getpid()
        try:
            _remove_abandoned(Path(tempfile.gettempdir()))
            self.path = Path(tempfile.mkdtemp(prefix=f"gpu_magic-{pid}-{_start_of(pid)}-"))
        except OSError as error:
            raise LaunchError(f"There is no place for the command's output: {error}.") from None
        self._remove = weakref.finalize(self, _remove, self.path, pid)

    def keep(self) -> Path:
        """Leave it where it is; return its path."""
        self._remove.detach()
        with suppress(OSError):  # it is full
            (self.path / _KEPT).touch()
        return self.path


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a child that was forked has the object as well
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(place: Path) -> None:
    for folder in place.glob("gpu_magic-*"):
        owner = _OWNED.match(folder.name)
        if not owner or folder.lstat().st_uid != os.getuid() or (folder / _KEPT).exists():
            continue
        if _start_of(int(owner[1])) != owner[2]:
            shutil.rmtree(folder, ignore_errors=True)


def _start_of(pid: int) -> str:
    found = read_stat(pid)
    return found[2] if found else ""
