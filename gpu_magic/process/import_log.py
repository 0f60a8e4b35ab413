"""Notices which import of a cell starts CUDA, without touching any import.

A finder at the head of `sys.meta_path` that finds nothing: Python asks it for every module that is not yet
loaded, and at each top-level one it asks the driver. What it costs is a few microseconds a package; what it
gives is a name: `import kornia`, where nothing in the cell says CUDA.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType, ModuleType

__all__ = ["ImportLog"]


class ImportLog:
    """Keeps the last import that the user's own code began.

    Parameters
    ----------
    check
        Called at the start of each top-level import, and of each that the user's own code asks for.

    """

    def __init__(self, check: Callable[[], None]) -> None:
        self.latest = ""
        self._check = check

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Look on; Python then asks the next finder."""
        del target
        is_users = _is_users(_importer(sys._getframe(1)))  # noqa: SLF001
        if path is not None and not is_users:  # a package's own submodule
            return
        with contextlib.suppress(Exception):  # whatever goes wrong here is no reason to fail their import
            self._check()
        if is_users:
            self.latest = fullname.partition(".")[0]

    def under_way(self) -> str:
        """Name the user's own import that is running its module's code right now; empty where none is."""
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
        module, depth = "", 0
        while frame is not None:
            if frame.f_code.co_name == "_find_and_load" and _is_importlib(frame):
                module, depth = str(frame.f_locals.get("name", "")), depth + 1
                if _is_users(_importer(frame)):
                    # The innermost one is only being looked for: none of its code has run.
                    return module.partition(".")[0] if depth > 1 else ""
            frame = frame.f_back
        return ""

    def attach(self) -> None:
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def detach(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def _importer(frame: FrameType | None) -> FrameType | None:
    """Return the frame that asked for an import, given one of the import system's own."""
    while frame is not None and _is_importlib(frame):
        frame = frame.f_back
    return frame


def _is_importlib(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith("<frozen importlib") or name.endswith("importlib/__init__.py")


def _is_users(frame: FrameType | None) -> bool:
    """Tell whether code stands in the notebook itself, and not in a package."""
    return frame is not None and frame.f_globals.get("__name__") == "__main__"
