"""Watches for the start of CUDA in this process: in which cell, and by which import.

It asks the driver after each cell and at each import, until CUDA has started. While the extension is loaded,
it also knows whether a cell runs, which claims show to other users.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.finders import changed_finders
from gpu_magic.interrupts import postponed_interrupts
from gpu_magic.process.drivers import State, driver, probe
from gpu_magic.process.environment import EnvironmentChanges

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType, ModuleType

__all__ = ["Start", "Watch", "cuda_watch"]

# Set during the watch. PyTorch reads it at every call of torch.cuda.is_available(), which calls cuInit if the
# variable is not set (torch 2.13, torch/cuda/__init__.py). It is then True if NVML lists a GPU, even if CUDA
# cannot start.
NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"


class Start(NamedTuple):
    """When CUDA was first seen to have started, and what started it."""

    # The numbers of the cells, one of which started it. Empty: a cell without a number. None: it is unknown
    # which, or that was before gpu_magic was loaded.
    cells: tuple[int, ...] | None = None
    cause: str = ""  # the import or the framework: `import kornia`, `PyTorch`; empty if unknown
    is_before_load: bool = False


class Watch:
    """Observes cells, and imports through `sys.meta_path`, where it never provides a module.

    Python asks it for every module that is not yet loaded, which takes a few microseconds for each package.
    So the watch can name the cause, such as `import kornia`, if the cell itself does not use CUDA.
    """

    def __init__(self) -> None:
        self.first: Start | None = None  # None: CUDA has not started
        self._asks = False  # whether it asks the driver after each cell, and at imports
        self._environment = EnvironmentChanges()
        self._started_before: Sequence[str] = ()
        self._latest = ""  # the package that the user's own code imported last in this cell
        self._shell: Any = None
        self._is_in_cell = True  # a cell creates the watch
        self._in_background: set[int] = set()  # the numbers of cells that run in the background
        # Running cells, by the id of the object that IPython passes to hooks. 0: the cell that loads us.
        self._cells: set[int] = set()
        # Called when a cell begins or ends, to update claims, with whether the user sees the cell's output.
        # None: nothing has been claimed or chosen.
        self.on_activity: Callable[[bool], None] | None = None
        self._hooks = ("pre_run_cell", self._before_cell), ("post_run_cell", self._after_cell)

    def begin(self, shell: Any) -> None:
        """Watch the cells of only this IPython shell, and imports, until CUDA has started."""
        self._remove_hooks()
        # IPython's hook is set while a cell runs. A configuration loads us before any cell.
        is_in_cell = sys.displayhook is shell.displayhook
        self._shell, self._cells = shell, {0} if is_in_cell else set()
        for event, hook in self._hooks:
            shell.events.register(event, hook)
        if NVML_CHECK not in os.environ and probe() is not State.BROKEN:
            self._environment.set(NVML_CHECK, "1")
        self._asks = not driver().is_started()
        if not self._asks:
            self._note(is_before_load=True)
        else:
            with changed_finders() as finders:
                finders.insert(0, self)

    def end(self) -> None:
        """Stop watching, and restore the environment variable."""
        self.look()
        self._remove_hooks()
        self._shell = None
        self._environment.restore(self._environment.names)

    def environment(self) -> dict[str, str]:
        """Return this process's variables for another program, without the one that only the watch needs."""
        ours = [name for name in self._environment.names if self._environment.is_unchanged(name)]
        return {name: value for name, value in os.environ.items() if name not in ours}

    def _remove_hooks(self) -> None:
        self._remove_finder()
        for event, hook in self._hooks:
            if self._shell is not None and hook in self._shell.events.callbacks[event]:
                self._shell.events.unregister(event, hook)

    def _remove_finder(self) -> None:
        with changed_finders() as finders:
            finders[:] = [finder for finder in finders if finder is not self]

    def begin_background(self, cell: int) -> None:
        """Note that a cell now runs in the background."""
        self._in_background.add(cell)
        self._publish(is_shown=True)

    def end_background(self, cell: int) -> None:
        self.look()
        self._in_background.discard(cell)
        self._publish(is_shown=True)

    def is_at_work(self) -> bool | None:
        """Return whether a cell runs, also in the background. None if no shell is watched."""
        return None if self._shell is None else bool(self._cells or self._in_background)

    def look(self) -> State:
        """Ask the driver now. If CUDA is first seen to have started, note it."""
        state = probe()
        if state is State.FROZEN:
            self._note()
        elif state is State.BROKEN:  # `is_available()` has to tell that
            self._environment.restore(self._environment.names)
        return state

    # Without a claim or a choice, and after CUDA's start, a hook sets two attributes. Holding back interrupts
    # would take ten times as long.

    def _before_cell(self, info: Any) -> None:
        self._cells.add(id(info))
        if self.on_activity is not None or self._in_background:
            with postponed_interrupts():
                self._publish(is_shown=info.store_history)
                if self._in_background:  # one of its cells can have started CUDA, before this one can
                    self._note()
        self._is_in_cell = True

    def _after_cell(self, result: Any) -> None:
        # Cells can nest and overlap. ipykernel has no result for a cell that was interrupted in an await. An
        # empty cell has not begun.
        self._cells -= set(self._cells) if result is None else {0, id(result.info)}
        self._is_in_cell = False
        if self.on_activity is not None or self._asks:
            with postponed_interrupts():
                self._publish(is_shown=result is None or result.info.store_history)
                if self._asks:
                    self._ask_after(result)

    def _publish(self, *, is_shown: bool) -> None:
        """Publish that a cell begins or ends. Editors run hidden cells without a place in the history."""
        if self.on_activity is not None:
            self.on_activity(is_shown)

    def _ask_after(self, result: Any) -> None:
        """Ask the driver after a cell. If CUDA has started, note it, and stop asking."""
        latest, self._latest = self._latest, ""
        if not (asked := driver()).is_started():
            self._started_before = _started_frameworks()
            if asked.error:
                self._environment.restore(self._environment.names)  # as in `look`
            return
        if result is None:
            self._note(self._with_background(self._last_input()), latest=latest)
        else:
            self._note(
                self._with_background(result.execution_count), latest=latest, cell=result.info.raw_cell
            )
        self._asks = False
        self._remove_finder()

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:  # noqa: ARG002
        """Note an import by the user or a package, and find nothing, so that Python asks the next finder."""
        is_users = _is_users(sys._getframe(1))  # noqa: SLF001
        if path is None or is_users:  # not a package's own submodule
            with contextlib.suppress(Exception):  # a failure here must not fail the user's import
                self._note(latest=self._latest, importer="user" if is_users else "package")
        if is_users:
            self._latest = fullname.partition(".")[0]

    def _note(
        self,
        cells: tuple[int, ...] | None = None,
        *,
        latest: str = "",
        cell: str = "",
        importer: str = "",
        is_before_load: bool = False,
    ) -> None:
        """Note when and how CUDA started, if this is seen for the first time.

        `cells` are as of `Start`. None: those that run. `latest` is the package that the user's code imported
        last. It is the certain cause if the rest of the ended `cell` has only imports. If a package that the
        user imports is running code, that package started CUDA. `importer` is "user" or "package".
        """
        if self.first is not None or probe() is not State.FROZEN:
            return
        initializer = _under_way() if importer else ""
        if importer == "package" and not initializer:
            # An import inside a function. PyTorch has some between cuInit and its flag. The cell's end tells.
            return
        if self._in_background:
            latest = initializer = cell = ""  # any of the running cells can have imported it
        if latest not in sys.modules:  # its import has failed
            latest = ""
        if latest and not initializer and _only_imports_from(cell, latest):
            initializer = latest
        frameworks = " and ".join(name for name in _started_frameworks() if name not in self._started_before)
        if initializer:
            cause = f"import {initializer}" + (f" (through {frameworks})" if frameworks else "")
        else:
            cause = frameworks or (f"import {latest}, or a line after it" if latest else "")
        # Without a shell, nothing watched when CUDA started.
        if cells is None and self._shell is not None and not is_before_load:
            cells = self._with_background(
                *[] if self._in_background and not self._is_in_cell else [self._last_input()]
            )
        self.first = Start(cells, cause, is_before_load)

    def _last_input(self) -> int:
        # IPython 8 counts a cell when it ends, IPython 9 when it begins. Both list its input before it runs.
        return len(self._shell.history_manager.input_hist_parsed) - 1

    def _with_background(self, *numbers: int | None) -> tuple[int, ...]:
        """Return the numbers of cells, with those that run in the background."""
        return tuple(sorted({number for number in numbers if number is not None} | self._in_background))


def _started_frameworks() -> Sequence[str]:
    """Return the names of the frameworks that report a started GPU."""
    from gpu_magic.frameworks import started  # loaded after the first cell

    return started()


def _under_way() -> str:
    """Return the package that the user's code is importing. Empty if no code of such a package runs."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    depth = 0
    while frame is not None:
        if frame.f_code.co_name == "_find_and_load" and _is_importlib(frame):
            depth += 1
            if _is_users(frame):
                # Python is still searching for the innermost module, so none of its code has run.
                return str(frame.f_locals.get("name", "")).partition(".")[0] if depth > 1 else ""
        frame = frame.f_back
    return ""


def _is_importlib(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith("<frozen importlib") or name.endswith("importlib/__init__.py")


def _is_users(frame: FrameType | None) -> bool:
    """Return whether the import in a frame comes from the notebook's own code, not from a package's."""
    while frame is not None and _is_importlib(frame):
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__") == "__main__"


def _only_imports_from(cell: str, package: str) -> bool:
    """Return whether a cell contains only imports from its first import of a package on.

    The driver was asked when that import began, so the lines above it have not started CUDA.
    """
    # A magic or a shell command can do anything, so it becomes a statement that is not an import.
    python = re.sub(r"^([ \t]*)[%!].*", r"\1...", cell, flags=re.MULTILINE)
    try:
        statements = ast.parse(python).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # not Python, or too many levels
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
