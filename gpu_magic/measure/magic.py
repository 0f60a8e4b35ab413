"""`%%gpu_time`: measure a cell. `%gpu_time on`: print a line after every cell that uses a GPU."""

from __future__ import annotations

import builtins
import contextlib
import difflib
import json
import threading
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.display import display

import gpu_magic
from gpu_magic.errors import GpuMagicError
from gpu_magic.interrupts import postponed_interrupts
from gpu_magic.measure.recorder import Block, recorder
from gpu_magic.process.show import show
from gpu_magic.shell.arguments import read, refusal
from gpu_magic.shell.cells import blocks_of, cell_number
from gpu_magic.text import html_block, with_full_stop

if TYPE_CHECKING:
    from types import EllipsisType

    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.measure.record import CellUsage
    from gpu_magic.shell.cells import End

__all__ = ["GpuTimeMagic", "stop"]

_WORDS = ("on", "off", "report")
_measured: dict[int, _MeasuredCells] = {}  # by the id of the shell


class GpuTimeMagic:
    """The magic that measures cells."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell: Any = shell

    def gpu_time(self, line: str, cell: str | EllipsisType | None = None) -> Any:
        """Print the time of a cell, as `%%time` does, and the utilization, memory and energy of each GPU.

            %%gpu_time         measure this cell
            %gpu_time train()  measure one line
            %gpu_time on       print a line after every cell that uses a GPU; %gpu_time off ends that
            %gpu_time report   list the measured cells, the longest first: gpu_magic.history() as a table

        {options}

        The time ends when the GPUs have finished the work of PyTorch, JAX and TensorFlow, as after
        `torch.cuda.synchronize()`. For each GPU, `%%gpu_time` prints the mean utilization, the peak memory
        of this process, how much more memory it has after the cell than before, and the joules
        of the whole GPU. `%%gpu_time` resets the peaks of PyTorch and TensorFlow, so that the cell's peak is
        exact. `%gpu_time on` does not.
        """
        __tracebackhide__ = True
        shell, word = self._shell, line.partition("#")[0].strip()
        blocks = blocks_of(shell)
        if cell is not None:
            options = read("%gpu_time", line)
            if options.request:
                raise refusal(f"%%gpu_time takes no {options.request}. Write the code below it.")
            body, is_json = blocks.body(cell), options.json
            code = _below("%%gpu_time", shell) if cell is ... else cell
        elif word == "report":
            return display(gpu_magic.history())
        elif word in ("on", "off"):
            stop(shell)
            if word == "on":
                _measured[id(shell)] = _MeasuredCells(shell)
            is_on = "From now on each cell that uses a GPU prints its time, memory and energy."
            return show(is_on if word == "on" else "Cells are no longer measured.")
        else:
            close = difflib.get_close_matches(word, _WORDS, n=1)
            if close and word.isidentifier() and word not in shell.user_ns and not hasattr(builtins, word):
                raise refusal(f"{word} is not defined. Did you mean %gpu_time {close[0]}?")
            code, is_json = _code_in(line)
            try:
                body = blocks.parse(f"{code}\n")
            except SyntaxError as error:
                ways = "%gpu_time takes on, off, report or code."
                raise refusal(f"{code!r:.60} is not Python ({error.msg}). {ways}") from None
            if body.awaits:
                raise UsageError("%gpu_time cannot await in a line. Write %%gpu_time above the cell.")

        def begin(_: object) -> End:
            return _begin(shell, code, is_json=is_json)

        return blocks.run(body, begin)


def _code_in(line: str) -> tuple[str, bool]:
    """Return the code in a line, and whether --json is given."""
    first, *rest = line.split(maxsplit=1) or [""]
    is_json = first == "--json"
    code = "".join(rest).rstrip() if is_json else line.strip()
    if not code:
        raise UsageError("%gpu_time takes on, off, report or code. To measure a cell: %%gpu_time")
    if code.startswith("--"):
        raise refusal(f"There is no {code.split()[0]}. The only option is --json.")
    return code, is_json


def _begin(shell: Any, code: str, *, is_json: bool) -> End:
    """Start to measure. Return what ends it, and shows the result."""
    __tracebackhide__ = True
    try:
        block = recorder().begin(reset=True)
    except GpuMagicError as error:
        raise UsageError(f"{with_full_stop(str(error))} The cell did not run.") from None

    def end(error: BaseException | None) -> None:
        has_failed = error is not None
        try:
            usage = recorder().end(block, _first_line(code), cell_number(shell), has_failed=has_failed)
        except GpuMagicError as problem:  # do not replace the cell's own value or error
            show(f"The cell was not measured: {problem}")
            return
        recorder().kept.append(usage)
        if is_json:
            print(json.dumps(usage.to_dict()))
        else:
            _show(usage, repr(usage), usage._repr_html_())

    return end


def _below(magic: str, shell: Any) -> str:
    """Return the code below a magic in the cell that runs, as typed. Empty if unknown."""
    running = shell.displayhook.exec_result
    typed = [] if running is None else running.info.raw_cell.splitlines()
    above = [number for number, line in enumerate(typed) if line.strip().startswith(magic)]
    return "\n".join(typed[above[0] + 1 :]) if above else ""


def stop(shell: Any) -> None:
    """Stop measuring the cells of a shell."""
    if (measured := _measured.pop(id(shell), None)) is not None:
        measured.end()


class _MeasuredCells:
    """Measures the cells of a shell. A cell that runs other cells counts as one."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._running: tuple[str, Block] | None = None  # the code of the running cell
        self._hooks = (("pre_run_cell", self._before), ("post_run_cell", self._after))
        for event, hook in self._hooks:
            shell.events.register(event, hook)

    def end(self) -> None:
        """Remove the hooks from the shell."""
        for event, hook in self._hooks:
            if hook in self._shell.events.callbacks[event]:
                self._shell.events.unregister(event, hook)

    @postponed_interrupts()
    def _before(self, info: Any) -> None:
        # A subshell runs its cells in another thread, at the same time as the notebook's cells.
        if self._running is None and threading.current_thread() is threading.main_thread():
            with contextlib.suppress(GpuMagicError):  # an invalid simulation, for which %gpus prints an error
                self._running = info.raw_cell, recorder().begin(reset=False)

    @postponed_interrupts()
    def _after(self, result: Any) -> None:
        # The result is None after an interrupted await in ipykernel. Other code is from a cell that this cell
        # runs, from a subshell, or from the cell with `%gpu_time on`.
        if self._running is None or (result is not None and result.info.raw_cell != self._running[0]):
            return
        (code, block), self._running = self._running, None
        has_failed = result is None or not result.success
        with contextlib.suppress(GpuMagicError):
            is_numbered, kept = result is None or result.info.store_history, recorder().kept
            number = cell_number(self._shell) if is_numbered else None
            usage = recorder().end(block, _first_line(code), number, has_failed=has_failed, only_touched=True)
            # If the cell has %%gpu_time, that has shown the record.
            is_shown = any(one.cell is not None and one.started > block.started for one in list(kept))
            if usage.gpus and not is_shown:
                kept.append(usage)
                _show(usage, usage.summary(), html_block(usage.summary(), ""))


def _first_line(code: str) -> str:
    return next((line.strip() for line in code.splitlines() if line.strip()), "")


def _show(usage: CellUsage, text: str, html: str) -> None:
    data = {"text/plain": text, "text/html": html}
    display(data, raw=True, metadata={"gpu_magic": usage.metadata()})
