"""Notices which import of a cell starts CUDA, without touching any import.

A finder at the head of `sys.meta_path` that finds nothing: Python asks it for every module that is not yet
loaded, and at each top-level one it asks the driver. What it costs is a few microseconds a package; what it
gives is a name: `import kornia`, where nothing in the cell says CUDA.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType, ModuleType

__all__ = ["ImportLog"]


class ImportLog:
    """Keeps the last import that the user's own code asked for.

    Parameters
    ----------
    check
        Called at the start of each top-level import with two names: of the user's import that is under
        way, and of one that is over. One of them is empty; both are before a cell's first.

    """

    def __init__(self, check: Callable[[str, str], None]) -> None:
        self.latest = ""
        self._check = check

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Look on; Python then asks the next finder."""
        del target
        if path is not None:  # a submodule
            return
        if _is_users(sys._getframe(1)):  # noqa: SLF001
            self._check("", self.latest)
            self.latest = fullname
        else:
            self._check(self.latest, "")

    def attach(self) -> None:
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def detach(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def _is_users(frame: FrameType | None) -> bool:
    """Tell whether the import stands in the notebook itself, and not in a package."""
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__") == "__main__"
