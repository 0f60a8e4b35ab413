"""The folder with the files of a launch: what its ranks write, and a cell's script."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path

from gpu_magic.errors import LaunchError

__all__ = ["RunFolder"]


class RunFolder:
    """A folder that goes with its object, or at the latest with this process.

    Raises
    ------
    LaunchError
        There is no place for it.

    """

    def __init__(self) -> None:
        try:
            self.path = Path(tempfile.mkdtemp(prefix="gpu_magic-"))
        except OSError as error:
            raise LaunchError(f"There is no place for the command's output: {error}.") from None
        self._remove = weakref.finalize(self, _remove, self.path, os.getpid())

    def keep(self) -> Path:
        """Leave it where it is; return its path."""
        self._remove.detach()
        return self.path


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a child that was forked has the object as well
        shutil.rmtree(folder, ignore_errors=True)
