"""`%%gpu_time`: what a cell costs. `%gpu_time on` says it after every cell that uses a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.display import display

import gpu_magic
from gpu_magic.errors import GpuMagicError
from gpu_magic.magics import measured_cells
from gpu_magic.magics.arguments import WORDS, read, refusal
from gpu_magic.magics.measured_cells import first_line
from gpu_magic.magics.usage_output import show_json, show_usage
from gpu_magic.shell.cells import Body, awaits, body_of, cell_number
from gpu_magic.usage.block import GpuTime

if TYPE_CHECKING:
    from types import TracebackType

    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["GpuTimeMagic"]

_WORDS = WORDS["%gpu_time"]
_GOES_WITH = f"%gpu_time goes with {', '.join(_WORDS)} or code"


class GpuTimeMagic:
    """The magic that measures cells."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell: Any = shell

    def gpu_time(self, line: str, cell: str | None = None) -> Any:
        """Say what a cell costs: what %%time says, and for each GPU how busy it was, memory, and energy.

        %%gpu_time         measure this cell
        %%gpu_time --json  print it as JSON
        %gpu_time train()  measure one line
        %gpu_time on       after every cell that uses a GPU, say it in one line; %gpu_time off ends that
        %gpu_time report   the cells that were measured, the longest first: gpu_magic.history() as a table

        Of each GPU that the cell used: the mean of its utilization; how long it was idle meanwhile; the peak
        of this process's memory, by the framework's own count where there is one, and how much of it is new
        and stayed; and the joules of the whole GPU, with those who worked there, too. %%gpu_time resets
        PyTorch's and TensorFlow's peaks, as torch.cuda.reset_peak_memory_stats() does, so that the cell's own
        is exact; %gpu_time on leaves them alone.
        """
        __tracebackhide__ = True
        if cell is None:
            return self._line(line.strip())
        options = read("%gpu_time", line)
        if options.request:
            raise refusal(f"%%gpu_time takes no {options.request}: the code stands below it.")
        body = body_of(self._shell, cell)
        scope = _MeasuredCell(self._shell, first_line(cell), is_json=options.json)
        return body.run(scope, _nothing, check_each=False)

    def _line(self, line: str) -> Any:
        __tracebackhide__ = True
        word = line.partition("#")[0].strip()
        code = line.removeprefix("--json").lstrip()
        if word in ("on", "off"):
            print(self._switch(is_on=word == "on"))
        elif word == "report":
            display(gpu_magic.history())
        elif not code:
            raise UsageError(f"{_GOES_WITH}; %%gpu_time measures a cell.")
        elif code.startswith("--"):
            raise refusal(f"There is no {code.split()[0]}; the option is --json. %gpu_time? explains it.")
        else:
            body = Body(self._shell, f"{code}\n")
            if awaits(body.compile(one_by_one=False)):
                raise UsageError(
                    "%gpu_time can't await in a line: write %%gpu_time above a cell that awaits."
                )
            scope = _MeasuredCell(self._shell, first_line(code), is_json=code != line)
            return body.run(scope, _nothing, check_each=False)
        return None

    def _switch(self, *, is_on: bool) -> str:
        if is_on:
            begin = "From the next cell on, each" if measured_cells.start(self._shell) else "Each"
            return f"{begin} cell that uses a GPU says what it cost."
        was_on = measured_cells.stop(self._shell)
        return "Cells are not measured any more." if was_on else "Cells were not measured."


class _MeasuredCell:
    """The scope of a cell that is measured, and says at its end what it has cost."""

    def __init__(self, shell: Any, code: str, *, is_json: bool) -> None:
        self._time = GpuTime(code, cell_number(shell))
        self._is_json = is_json

    def __enter__(self) -> None:
        __tracebackhide__ = True
        try:
            self._time.__enter__()
        except GpuMagicError as error:
            raise UsageError(f"{error} The cell has not run.") from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        try:
            self._time.__exit__(kind, error, trace)
        except GpuMagicError as problem:  # the cell's own value, or error, is what matters
            print(f"The cell was not measured: {problem}")
            return
        show = show_json if self._is_json else show_usage
        show(self._time.usage)


def _nothing() -> None:
    """Check nothing between the statements of the cell."""
