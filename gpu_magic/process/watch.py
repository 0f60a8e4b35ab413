"""Watches for the moment when CUDA is initialized in this process: in which cell, and by which import.

It asks the driver after each cell and at each import, and stops once CUDA is initialized. `%load_ext` loads
this module, so it imports little: `cause` puts the cause into words, and is loaded when there is one.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

from gpu_magic.interrupts import postponed_interrupts
from gpu_magic.process import driver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType, ModuleType

    from gpu_magic.process.cause import Sighting
    from gpu_magic.process.state import State

__all__ = ["ImportLog", "Watch", "cuda_watch"]

# While it watches, this is set. PyTorch reads it at every call of torch.cuda.is_available(), which without it
# calls cuInit (torch 2.13, torch/cuda/__init__.py).
NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"


class Watch:
    """Watches this process.

    Attributes
    ----------
    first
        When CUDA was first seen to be initialized, and by what; None: it was not.

    """

    def __init__(self) -> None:
        self.first: Sighting | None = None
        self._started_before: Sequence[str] = ()
        self._imports = ImportLog(self._at_import)
        self._shell: Any = None
        self._is_in_cell = True  # it is created in one
        self._beside: set[int] = set()  # the numbers of the cells that run in the background
        self._has_set_check = False  # NVML_CHECK

    def begin(self, shell: Any) -> None:
        """Watch the cells of an IPython shell, and its imports, until CUDA is initialized.

        A shell that was watched before is not watched any more.
        """
        self._remove_hooks()
        self._shell = shell
        if NVML_CHECK not in os.environ:
            os.environ[NVML_CHECK], self._has_set_check = "1", True
        if driver().is_initialized():
            self._note("before gpu_magic was loaded")
        else:
            shell.events.register("pre_run_cell", self._before_cell)
            shell.events.register("post_run_cell", self._after_cell)
            self._imports.attach()

    def end(self) -> None:
        """Stop watching, and restore what was set."""
        if driver().is_initialized():
            self._note(self._this_cell())
        self._remove_hooks()
        self._shell = None
        if self._has_set_check and os.environ.get(NVML_CHECK) == "1":
            del os.environ[NVML_CHECK]
        self._has_set_check = False

    def _remove_hooks(self) -> None:
        """Remove the hooks from the shell and from the import system."""
        self._imports.detach()
        if self._shell is not None:
            for event, hook in (("pre_run_cell", self._before_cell), ("post_run_cell", self._after_cell)):
                if hook in self._shell.events.callbacks[event]:
                    self._shell.events.unregister(event, hook)

    def begin_beside(self, cell: int) -> None:
        """Take note that a cell runs in the background from here on, while others do."""
        self._beside.add(cell)

    def end_beside(self, cell: int) -> None:
        """Take note of its end."""
        if driver().is_initialized():
            self._note(self._this_cell())
        self._beside.discard(cell)

    def look(self) -> State:
        """Ask the driver now; note it where CUDA is seen to be initialized for the first time."""
        from gpu_magic.process.state import probe

        if driver().is_initialized():
            self._note(self._this_cell())
        return probe()

    def _at_import(self) -> None:
        if driver().is_initialized():
            imports = self._imports
            self._note(self._this_cell(), latest=imports.latest, initializer=imports.under_way())

    def _before_cell(self, info: object) -> None:
        """Find out what cells in the background have done, before this cell can have done it."""
        del info
        if self._beside:
            self._look_beside()
        self._is_in_cell = True

    @postponed_interrupts()
    def _look_beside(self) -> None:
        if driver().is_initialized():
            self._note(self._this_cell())

    @postponed_interrupts()
    def _after_cell(self, result: Any) -> None:
        self._is_in_cell = False
        latest, self._imports.latest = self._imports.latest, ""
        if not driver().is_initialized():
            self._started_before = _started_frameworks()
            return
        if result is None:  # ipykernel has none of a cell that awaits and was interrupted
            inputs = self._shell.history_manager.input_hist_parsed
            self._note(self._in_cells(len(inputs) - 1), latest=latest)
        else:
            self._note(self._in_cells(result.execution_count), latest=latest, cell=result.info.raw_cell)
        self._remove_hooks()

    def _note(self, when: str, *, latest: str = "", initializer: str = "", cell: str = "") -> None:
        """Note when CUDA was initialized, and by what, if this is the first time that it is seen.

        Parameters
        ----------
        when
            As in `Sighting`.
        latest, initializer, cell
            The evidence: see `cause.name_cause`.

        """
        if self.first is not None or driver().is_forked():
            return
        from gpu_magic.process.cause import Sighting, name_cause

        if self._beside:
            latest = initializer = cell = ""  # any of the cells that run can have imported it
        started = [name for name in _started_frameworks() if name not in self._started_before]
        self.first = Sighting(when, name_cause(started, latest, initializer, cell))

    def _this_cell(self) -> str:
        if self._shell is None:  # nothing watched when it happened
            return ""
        if self._beside and not self._is_in_cell:
            return self._in_cells()
        # IPython 8 counts a cell up when it ends and IPython 9 when it begins; both list its input first.
        return self._in_cells(len(self._shell.history_manager.input_hist_parsed) - 1)

    def _in_cells(self, *numbers: int | None) -> str:
        """Return `in cell [4]`, or `in cell [4] or [5]` with one that runs in the background meanwhile."""
        found = sorted({number for number in numbers if number is not None} | self._beside)
        return f"in cell {' or '.join(f'[{one}]' for one in found)}" if found else "in an unnumbered cell"


def _started_frameworks() -> Sequence[str]:
    """Return the names of the frameworks that report a started GPU."""
    from gpu_magic.frameworks import started  # loaded after the first cell

    return started()


class ImportLog:
    """Notices imports, and finds out which one is running, without changing any.

    It is a finder at the head of `sys.meta_path` that finds nothing. Python asks it for every module that is
    not yet loaded, which takes a few microseconds for each package. In return a cause has a name,
    `import kornia`, where nothing in the cell says CUDA.

    Parameters
    ----------
    check
        Called at the start of each top-level import, and of each import in the user's own code.

    Attributes
    ----------
    latest
        The package that the user's own code began to import last; empty for none.

    """

    def __init__(self, check: Callable[[], None]) -> None:
        self.latest = ""
        self._check = check

    def attach(self) -> None:
        if self not in sys.meta_path:
            sys.meta_path = [self, *sys.meta_path]

    def detach(self) -> None:
        # A new list: another thread can be going through the old one, and would miss a finder.
        sys.meta_path = [finder for finder in sys.meta_path if finder is not self]

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Note an import, and find nothing: Python then asks the next finder."""
        del target
        is_users = _is_users(_importer(sys._getframe(1)))  # noqa: SLF001
        if path is not None and not is_users:  # a package's own submodule
            return
        with contextlib.suppress(Exception):  # a failure here must not fail the user's import
            self._check()
        if is_users:
            self.latest = fullname.partition(".")[0]

    def under_way(self) -> str:
        """Return the package that the user's own code is importing now; empty where no code of one runs."""
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
        module, depth = "", 0
        while frame is not None:
            if frame.f_code.co_name == "_find_and_load" and _is_importlib(frame):
                module, depth = str(frame.f_locals.get("name", "")), depth + 1
                if _is_users(_importer(frame)):
                    # Python is still looking for the innermost one: none of its code has run.
                    return module.partition(".")[0] if depth > 1 else ""
            frame = frame.f_back
        return ""


def _importer(frame: FrameType | None) -> FrameType | None:
    """Return the frame that asked for an import, given a frame of the import system."""
    while frame is not None and _is_importlib(frame):
        frame = frame.f_back
    return frame


def _is_importlib(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith("<frozen importlib") or name.endswith("importlib/__init__.py")


def _is_users(frame: FrameType | None) -> bool:
    """Return whether a frame runs code of the notebook itself, and not of a package."""
    return frame is not None and frame.f_globals.get("__name__") == "__main__"


cuda_watch = Watch()  # a process has one CUDA
