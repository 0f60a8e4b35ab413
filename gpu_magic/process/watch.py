"""Watches for the moment when CUDA is started in this process: in which cell, and by which import.

It asks the driver after each cell and at each import, and stops once CUDA is started. Whether a cell runs, it
knows for as long as the extension is loaded: claims tell other users.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import sys
from typing import TYPE_CHECKING, Any

from gpu_magic.interrupts import postponed_interrupts
from gpu_magic.process.drivers import State, driver, probe
from gpu_magic.process.environment import EnvironmentChanges

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType, ModuleType

__all__ = ["Watch", "cuda_watch"]

# While it watches, this is set. PyTorch reads it at every call of torch.cuda.is_available(), which without it
# calls cuInit (torch 2.13, torch/cuda/__init__.py).
NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"


class Watch:
    """Watches this process.

    It is a finder at the head of `sys.meta_path` that finds nothing. Python asks it for every module that is
    not yet loaded, which takes a few microseconds for each package. In return a cause has a name,
    `import kornia`, if nothing in the cell says CUDA.
    """

    def __init__(self) -> None:
        # `Guard.since` and `Guard.by`, when CUDA was first seen to be started; None: it was not.
        self.first: tuple[str, str] | None = None
        self._environment = EnvironmentChanges()
        self._started_before: Sequence[str] = ()
        self._latest = ""  # the package that the user's own code began to import last in this cell
        self._shell: Any = None
        self._is_in_cell = True  # it is created in one
        self._beside: set[int] = set()  # the numbers of the cells that run in the background
        # Cells that run, by what IPython hands to hooks; 0: the one that loads us.
        self._cells: set[int] = set()
        self.tell: Callable[[], None] = lambda: None  # a cell begins or ends: claims say so to other users
        self._lasting = ("pre_run_cell", self._cell_begins), ("post_run_cell", self._cell_has_ended)

    def begin(self, shell: Any) -> None:
        """Watch the cells of an IPython shell, and no other one's, and its imports, until CUDA is started."""
        self._remove_hooks(*self._lasting)
        self._shell, self._cells = shell, {0}
        for event, hook in self._lasting:
            shell.events.register(event, hook)
        if NVML_CHECK not in os.environ:
            self._environment.set(NVML_CHECK, "1")
        if driver().is_started():
            self._note("before gpu_magic was loaded")
        else:
            shell.events.register("pre_run_cell", self._before_cell)
            shell.events.register("post_run_cell", self._after_cell)
            sys.meta_path = [self, *sys.meta_path]

    def end(self) -> None:
        """Stop watching, and restore what was set."""
        self.look()
        self._remove_hooks(*self._lasting)
        self._shell = None
        self._environment.restore(self._environment.names)

    def _remove_hooks(self, *more: tuple[str, Any]) -> None:
        # A new list: another thread can be going through the old one, and would miss a finder.
        sys.meta_path = [finder for finder in sys.meta_path if finder is not self]
        of_cuda = ("pre_run_cell", self._before_cell), ("post_run_cell", self._after_cell)
        for event, hook in (*of_cuda, *more):
            if self._shell is not None and hook in self._shell.events.callbacks[event]:
                self._shell.events.unregister(event, hook)

    def begin_beside(self, cell: int) -> None:
        """Take note that a cell runs in the background from here on, while others do."""
        self._beside.add(cell)
        self.tell()

    def end_beside(self, cell: int) -> None:
        self.look()
        self._beside.discard(cell)
        self.tell()

    def is_at_work(self) -> bool | None:
        """Return whether a cell runs, also in the background; None without a shell that is watched."""
        return None if self._shell is None else bool(self._cells or self._beside)

    @postponed_interrupts()
    def _cell_begins(self, info: object) -> None:
        self._cells.add(id(info))
        self.tell()

    @postponed_interrupts()
    def _cell_has_ended(self, result: Any) -> None:
        # Cells nest, and can run beside each other. ipykernel has no result of one that awaits and was
        # interrupted; an empty one has not begun.
        self._cells -= set(self._cells) if result is None else {0, id(result.info)}
        self.tell()

    def look(self) -> State:
        """Ask the driver now; note it if CUDA is seen to be started for the first time."""
        state = probe()
        if state is State.FROZEN:
            self._note()
        return state

    def _before_cell(self, info: object) -> None:  # noqa: ARG002 - IPython names it
        """Find out what cells in the background have done, before this cell can have done it."""
        if self._beside:
            with postponed_interrupts():
                self._note()
        self._is_in_cell = True

    @postponed_interrupts()
    def _after_cell(self, result: Any) -> None:
        self._is_in_cell = False
        latest, self._latest = self._latest, ""
        if not driver().is_started():
            self._started_before = _started_frameworks()
            return
        if result is None:  # ipykernel has none of a cell that awaits and was interrupted
            self._note(self._in_cells(self._last_input()), latest=latest)
        else:
            self._note(self._in_cells(result.execution_count), latest=latest, cell=result.info.raw_cell)
        self._remove_hooks()

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:  # noqa: ARG002
        """Note an import of the user's, or of a package, and find nothing: Python asks the next finder."""
        is_users = _is_users(sys._getframe(1))  # noqa: SLF001
        if path is None or is_users:  # not a package's own submodule
            with contextlib.suppress(Exception):  # a failure here must not fail the user's import
                self._note(latest=self._latest, importer="user" if is_users else "package")
        if is_users:
            self._latest = fullname.partition(".")[0]

    def _note(self, when: str = "", *, latest: str = "", cell: str = "", importer: str = "") -> None:
        """Note when CUDA was started, and by what, if this is the first time that it is seen.

        `when` is empty for the cell that runs. `latest` is the package that the user's code began to import
        last; it is certain if the `cell` that has ended only imports from there on. While a module is being
        imported, code of the user's package that runs has started CUDA. The `importer` is who imports now,
        "user" or "package".
        """
        if self.first is not None or probe() is not State.FROZEN:
            return
        initializer = _under_way() if importer else ""
        if importer == "package" and not initializer:
            # A function's own import: PyTorch makes some between cuInit and its flag. The cell's end tells.
            return
        if self._beside:
            latest = initializer = cell = ""  # any of the cells that run can have imported it
        if latest not in sys.modules:  # it has failed
            latest = ""
        if latest and not initializer and _only_imports_from(cell, latest):
            initializer = latest
        frameworks = " and ".join(name for name in _started_frameworks() if name not in self._started_before)
        if initializer:
            by = f"import {initializer}" + (f" (through {frameworks})" if frameworks else "")
        else:
            by = frameworks or (f"import {latest}, or a line after it" if latest else "")
        if not when and self._shell is not None:  # else nothing watched when it happened
            when = self._in_cells(*[] if self._beside and not self._is_in_cell else [self._last_input()])
        self.first = when, by

    def _last_input(self) -> int:
        # IPython 8 counts a cell up when it ends and IPython 9 when it begins; both list its input first.
        return len(self._shell.history_manager.input_hist_parsed) - 1

    def _in_cells(self, *numbers: int | None) -> str:
        """Return `in cell [4]`, or `in cell [4] or [5]` with one that runs in the background meanwhile."""
        found = sorted({number for number in numbers if number is not None} | self._beside)
        return f"in cell {' or '.join(f'[{one}]' for one in found)}" if found else "in an unnumbered cell"


def _started_frameworks() -> Sequence[str]:
    """Return the names of the frameworks that report a started GPU."""
    from gpu_magic.frameworks import started  # loaded after the first cell

    return started()


def _under_way() -> str:
    """Return the package that the user's own code is importing now; empty if no code of one runs."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    depth = 0
    while frame is not None:
        if frame.f_code.co_name == "_find_and_load" and _is_importlib(frame):
            depth += 1
            if _is_users(frame):
                # Python is still looking for the innermost one: none of its code has run.
                return str(frame.f_locals.get("name", "")).partition(".")[0] if depth > 1 else ""
        frame = frame.f_back
    return ""


def _is_importlib(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith("<frozen importlib") or name.endswith("importlib/__init__.py")


def _is_users(frame: FrameType | None) -> bool:
    """Return whether the notebook's own code, and not a package's, asks for the import in a frame."""
    while frame is not None and _is_importlib(frame):
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__") == "__main__"


def _only_imports_from(cell: str, package: str) -> bool:
    """Return whether a cell, from where it first imports a package, contains nothing but imports.

    The driver was asked when that import began, so what is above has not started CUDA.
    """
    # A magic or a shell command can do anything: it is made a statement that is not an import.
    python = re.sub(r"^([ \t]*)[%!].*", r"\1...", cell, flags=re.MULTILINE)
    try:
        statements = ast.parse(python).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # it is no Python, or has very many levels
        return False
    is_first_seen = False
    for one in statements:
        names = [alias.name for alias in one.names] if isinstance(one, ast.Import) else []
        names += [one.module or ""] if isinstance(one, ast.ImportFrom) else []
        is_first_seen |= package in [name.partition(".")[0] for name in names]
        if is_first_seen and not names:
            return False
    return is_first_seen


cuda_watch = Watch()  # a process has one CUDA
