"""Watches for the moment when CUDA starts in this process: since which cell, and by what.

It looks after each cell and at each import, and stops when there is nothing left to see.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from gpu_magic.process.driver import State, probe
from gpu_magic.process.import_log import ImportLog

if TYPE_CHECKING:
    import ast
    from collections.abc import Sequence

    from gpu_magic.process.frozen import Sighting

__all__ = ["Watch"]


class Watch:
    """Watches one process."""

    def __init__(self) -> None:
        self.first: Sighting | None = None
        self._started_before: Sequence[str] = ()
        self._imports = ImportLog(self._at_import)
        self._shell: Any = None

    def begin(self, shell: Any) -> None:
        """Watch the cells of an IPython shell, and its imports, until CUDA has started."""
        self._shell = shell
        if self.look("before gpu_magic was loaded").can_change:
            shell.events.register("post_run_cell", self._after_cell)
            self._imports.attach()

    def end(self) -> None:
        """Stop watching; nothing is left behind in the shell or in the import system."""
        self._imports.detach()
        if self._shell is not None and self._after_cell in self._shell.events.callbacks["post_run_cell"]:
            self._shell.events.unregister("post_run_cell", self._after_cell)
        self._shell = None

    def look(self, when: str = "", *, surely: str = "", perhaps: str = "") -> State:
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
            from gpu_magic.process.frozen import Sighting

            own_up = " and ".join(name for name in _started() if name not in self._started_before)
            by = f"{surely} (through {own_up})" if surely and own_up else surely or own_up or perhaps
            self.first = Sighting(when or self._this_cell(), by)
        return state

    def _this_cell(self) -> str:
        if self._shell is None:  # nobody was watching when it happened
            return ""
        # IPython 8 counts a cell up when it ends and IPython 9 when it begins; both list its input first.
        return f"in cell [{len(self._shell.history_manager.input_hist_parsed) - 1}]"

    def _at_import(self) -> None:
        if probe() is State.FROZEN:
            under_way = self._imports.under_way()
            self.look(surely=f"import {under_way}" if under_way else "", perhaps=self._perhaps())

    def _after_cell(self, result: Any) -> None:
        number, latest = result.execution_count, self._imports.latest
        is_sure = latest in sys.modules and _imports_to_the_end(result.info.raw_cell, latest)
        state = self.look(
            "in an unnumbered cell" if number is None else f"in cell [{number}]",
            surely=f"import {latest}" if is_sure else "",
            perhaps=self._perhaps(),
        )
        self._imports.latest = ""
        if state.can_change:
            self._started_before = _started()
        else:  # and not before: an import that is under way is going through the list that we stand in
            self.end()

    def _perhaps(self) -> str:
        """Name the last import that the cell has made: it, or what came after it."""
        latest = self._imports.latest
        return f"import {latest}, or a line after it" if latest in sys.modules else ""


def _started() -> Sequence[str]:
    """Name the frameworks that say of themselves that they have started a GPU."""
    from gpu_magic.frameworks import started

    return started()


def _imports_to_the_end(cell: str, module: str) -> bool:
    """Tell whether a cell, from where it first imports the module, does nothing else than import.

    What stands before was looked at when that import began.
    """
    import ast

    # A magic or a shell command can do anything; it counts as a statement that is no import.
    python = re.sub(r"^([ \t]*)[%!].*", r"\1...", cell, flags=re.MULTILINE)
    try:
        statements = ast.parse(python).body
    except (SyntaxError, ValueError):
        return False
    first = next((place for place, one in enumerate(statements) if module in _imported_by(one)), None)
    return first is not None and all(map(_imported_by, statements[first:]))


def _imported_by(statement: ast.stmt) -> list[str]:
    """Return the top-level modules that a statement imports; none where it is not an import."""
    import ast

    if isinstance(statement, ast.ImportFrom):
        return [(statement.module or "").partition(".")[0]]
    if isinstance(statement, ast.Import):
        return [name.name.partition(".")[0] for name in statement.names]
    return []
