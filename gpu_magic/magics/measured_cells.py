"""`%gpu_time on`: measures each cell of a shell, and says of those that used a GPU what they cost."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import GpuMagicError
from gpu_magic.interrupts import postponed_interrupts
from gpu_magic.magics.usage_output import show_quietly
from gpu_magic.shell.cells import cell_number
from gpu_magic.usage.recorder import recorder

if TYPE_CHECKING:
    from gpu_magic.usage.measurement import Measurement

__all__ = ["MeasuredCells", "first_line", "start", "stop"]

_shells: dict[int, MeasuredCells] = {}


def start(shell: Any) -> bool:
    """Measure each cell of a shell from the next one on; return whether that is new."""
    if id(shell) in _shells:
        return False
    _shells[id(shell)] = MeasuredCells(shell)
    return True


def stop(shell: Any) -> bool:
    """Measure no more cells of it; return whether it was measured."""
    measured = _shells.pop(id(shell), None)
    if measured is not None:
        measured.end()
    return measured is not None


class MeasuredCells:
    """Measures the cells of a shell. A cell that runs others is one."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._depth = 0
        self._block: Measurement | None = None
        self._cells = 0  # that were measured before this one
        shell.events.register("pre_run_cell", self._before)
        shell.events.register("post_run_cell", self._after)

    def end(self) -> None:
        """Take the hooks from the shell."""
        for event, hook in (("pre_run_cell", self._before), ("post_run_cell", self._after)):
            if hook in self._shell.events.callbacks[event]:
                self._shell.events.unregister(event, hook)

    @postponed_interrupts()
    def _before(self, info: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # a subshell runs its cells beside those of the notebook
        self._depth += 1
        if self._depth > 1 or info.silent:
            return
        with contextlib.suppress(GpuMagicError):  # a simulation that is described wrongly: %gpus says so
            self._cells = recorder().cells
            self._block = recorder().begin(reset=False)

    @postponed_interrupts()
    def _after(self, result: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        # ipykernel has no result of a cell that awaits and was interrupted; a blank cell has no begin.
        info = None if result is None else result.info
        if info is not None and not info.raw_cell.strip():
            return
        self._depth = max(0, self._depth - 1)  # the cell that says "on" has only an end
        block = self._block
        if self._depth or block is None:
            return
        self._block = None
        with contextlib.suppress(GpuMagicError):
            usage = recorder().end(
                block,
                cell=cell_number(self._shell) if info is None or info.store_history else None,
                code=first_line("" if info is None else info.raw_cell),
                has_failed=result is None or not result.success,
                only_touched=True,
            )
            if recorder().cells != self._cells:  # %%gpu_time in the cell has said it
                return
            if usage.gpus:
                recorder().keep(usage)
                show_quietly(usage)


def first_line(code: str) -> str:
    """Return the first line of a cell that says something."""
    return next((line.strip() for line in code.splitlines() if line.strip()), "")
