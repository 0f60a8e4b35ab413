"""Runs the body of a cell magic in a thread, while other cells run; its output stays below its own cell."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.display import display

from gpu_magic.magics.cell_output import output_of_cell
from gpu_magic.magics.cells import awaits, cell_number
from gpu_magic.placement.thread_task import ThreadTask
from gpu_magic.process.tasks import tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from gpu_magic.magics.cells import Body
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["run_in_background"]

# What IPython makes of a magic that acts on all threads.
_CAPTURE = "get_ipython().run_cell_magic('capture',"


def run_in_background(
    body: Body,
    scope: AbstractContextManager[Sequence[LogicalDevice]],
    check: Callable[[], None],
    name: str,
    *,
    check_each: bool,
) -> None:
    """Start a body in a thread, as a task that `%gpu_tasks` knows; say where it runs, and return.

    Parameters
    ----------
    body, scope, check, check_each
        As for `Body.run`; the scope returns the devices that it sets.
    name
        What the task is called; empty for `cell_4`, after the number of the cell.

    Raises
    ------
    UsageError, LaunchError
        Why it can't be run in the background; nothing has run.

    """
    __tracebackhide__ = True
    shell = body.shell
    cell = cell_number(shell)
    name = name or f"cell_{cell}"
    tasks.check_name(name)
    steps = body.compile(one_by_one=check_each, by_displayhook=False)
    if awaits(steps):
        raise UsageError(
            "await needs this kernel's event loop, which is for the cells in the foreground. With "
            "--background, asyncio.run(...) runs a coroutine."
        )
    if _CAPTURE in body.source:
        raise UsageError(
            "%%capture takes the output of all cells that run. With --background, it stays below this cell."
        )

    def run() -> Any:
        __tracebackhide__ = True
        return body.run_steps(steps, check, show=display)

    def at_begin(task: ThreadTask) -> None:
        print(f"{task.name}: running on {task.where}")

    def at_end(task: ThreadTask) -> None:
        if task.error is not None:
            _show_error(shell, task.error)

    task = ThreadTask(
        name, run, scope, cell=cell, call=output_of_cell(shell), at_begin=at_begin, at_end=at_end
    )
    task.start()
    tasks.add(task)


def _show_error(shell: Any, error: BaseException) -> None:
    """Write an error as IPython shows it; %debug and %tb are still about the last one of the other cells."""
    if isinstance(error, UsageError):
        text = f"UsageError: {error}"
    elif hasattr(error, "_render_traceback_"):  # IPython's protocol
        text = "\n".join(error._render_traceback_())
    elif isinstance(error, BaseExceptionGroup):  # IPython does not show what is in it
        text = "".join(traceback.format_exception(error))
    else:
        formatter, frames = shell.InteractiveTB, error.__traceback__
        while frames is not None and "__tracebackhide__" in frames.tb_frame.f_locals:
            frames = frames.tb_next  # ours, down to the cell
        text = formatter.stb2text(formatter.structured_traceback(type(error), error, frames, tb_offset=0))
    print(text, file=sys.stderr)
