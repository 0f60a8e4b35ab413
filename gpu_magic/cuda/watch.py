"""Watches for the moment when CUDA starts in this process: since which cell, and by what.

It looks after each cell and at each import, and stops when there is nothing left to see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.cuda.driver import State, probe
from gpu_magic.cuda.imports import ImportLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Sighting", "Watch"]


class Sighting(NamedTuple):
    """When CUDA was first seen to be initialised, and through what.

    Parameters
    ----------
    when
        `in cell [4]`, or `before gpu_magic was loaded`; empty outside IPython.
    by
        `import kornia`, `PyTorch`; empty where it can't be told.

    """

    when: str
    by: str = ""


class Watch:
    """Watches one process.

    Parameters
    ----------
    started
        Names the frameworks that say of themselves that they have started their devices.

    """

    def __init__(self, started: Callable[[], Sequence[str]]) -> None:
        self.first: Sighting | None = None
        self._started = started
        self._started_before: Sequence[str] = ()
        self._imports = ImportLog(self._at_import)
        self._shell: Any = None

    def begin(self, shell: Any) -> None:
        """Watch the cells of an IPython shell, and its imports, until CUDA has started."""
        self._shell = shell
        if self.see("before gpu_magic was loaded").can_change:
            shell.events.register("post_run_cell", self._after_cell)
            self._imports.attach()

    def end(self) -> None:
        """Stop watching; nothing is left behind in the shell or in the import system."""
        self._imports.detach()
        if self._shell is not None and self._after_cell in self._shell.events.callbacks["post_run_cell"]:
            self._shell.events.unregister("post_run_cell", self._after_cell)

    def see(self, when: str = "", *, surely: str = "", perhaps: str = "") -> State:
        """Look now, and note it if this is the first time that CUDA is seen to have started.

        Parameters
        ----------
        when
            Where in the session this is; empty: in the cell that runs.
        surely
            What started it, where that is certain.
        perhaps
            What else to say where no framework owns up to it.

        """
        state = probe()
        if state is State.FROZEN and self.first is None:
            own_up = " and ".join(name for name in self._started() if name not in self._started_before)
            by = f"{surely} (through {own_up})" if surely and own_up else surely or own_up or perhaps
            self.first = Sighting(when or self._this_cell(), by)
            self.end()
        return state

    def _this_cell(self) -> str:
        if self._shell is None:
            return ""
        # IPython 8 counts a cell up when it ends and IPython 9 when it begins; both list its input first.
        return f"in cell [{len(self._shell.history_manager.input_hist_parsed) - 1}]"

    def _at_import(self, under_way: str, over: str) -> None:
        self.see(
            surely=f"import {under_way}" if under_way else "",
            perhaps=f"import {over}, or a line after it" if over else "",
        )

    def _after_cell(self, result: Any) -> None:
        latest, self._imports.latest = self._imports.latest, ""
        number = result.execution_count
        state = self.see(
            "in an unnumbered cell" if number is None else f"in cell [{number}]",
            surely=f"import {latest}" if latest and _ends_with_import(result.info.raw_cell, latest) else "",
            perhaps=f"import {latest}, or a line after it" if latest else "",
        )
        if state.can_change:
            self._started_before = self._started()


def _ends_with_import(cell: str, module: str) -> bool:
    """Tell whether a cell's last statement imports the module, so that nothing else can have run since."""
    import ast

    lines = [line for line in cell.splitlines() if not line.lstrip().startswith(("%", "!"))]
    try:
        last = ast.parse("\n".join(lines)).body[-1]
    except (SyntaxError, IndexError, ValueError):
        return False
    if isinstance(last, ast.ImportFrom):
        return (last.module or "").partition(".")[0] == module
    return isinstance(last, ast.Import) and last.names[-1].name.partition(".")[0] == module
