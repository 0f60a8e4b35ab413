"""How a command that runs is shown: its output as it comes, and a line that says what its GPUs do."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from IPython.display import display

from gpu_magic.display.rank_folds import RankFolds
from gpu_magic.display.task_output import RankLines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

    from gpu_magic.launching.output import Output
    from gpu_magic.launching.task import Task

__all__ = ["show_output", "view_of"]

_AGAIN = 1.0  # seconds between two states of the line
_MOST_SHOWN = 1 << 20  # bytes of what a task has written so far


class View(Protocol):
    """Shows what ranks write."""

    def show(self, pieces: Iterable[tuple[Output, str]]) -> None:
        """Show what they have written since; called many times a second."""


def view_of(task: Task, *, in_kernel: bool) -> AbstractContextManager[View]:
    """Return what shows a task while it runs; at the end of the `with` block, its outcome is shown."""
    if not in_kernel:
        return _terminal(task)
    return _tabs(task) if task.has_ranks else _stream(task)


def show_output(task: Task, *, in_kernel: bool) -> None:
    """Show what a task has written so far."""
    if in_kernel and task.has_ranks:
        display(RankFolds(task))
        return
    lines = RankLines(sys.stdout, has_ranks=task.has_ranks)
    lines.show((output, output.tail(_MOST_SHOWN // len(task.outputs))) for output in task.outputs)
    lines.end()


@contextmanager
def _terminal(task: Task) -> Iterator[View]:
    """Write lines behind the numbers of their ranks, and below them the outcome, unless an error says it."""
    lines = RankLines(sys.stdout, has_ranks=task.has_ranks)
    yield lines
    lines.end()
    if not task.has_failed:
        print(task)


@contextmanager
def _stream(task: Task) -> Iterator[View]:
    """In a notebook: a line that changes, and below it what is written."""
    line = _Line(task)
    try:
        yield line
    finally:
        line.update()


class _Line:
    """The output of a command without ranks, below a line that is brought up to date."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._due = time.monotonic() + _AGAIN
        self._handle = display(_text(task), raw=True, display_id=True)
        self._lines = RankLines(sys.stdout, has_ranks=False)

    def show(self, pieces: Iterable[tuple[Output, str]]) -> None:
        self._lines.show(pieces)
        if time.monotonic() >= self._due:
            self.update()
            self._due = time.monotonic() + _AGAIN

    def update(self) -> None:
        self._handle.update(_text(self._task), raw=True)


@contextmanager
def _tabs(task: Task) -> Iterator[View]:
    """In a notebook: a tab for each rank, and at the end folds, which stay in the notebook."""
    from gpu_magic.widget.rank_tabs import RankTabs  # loads ipywidgets

    tabs = RankTabs(task)
    handle = display(tabs.bundle(), raw=True, display_id=True)
    try:
        yield tabs
    finally:
        tabs.close()
        handle.update(_text(task), raw=True)
        display(RankFolds(task))


def _text(task: Task) -> dict[str, str]:
    return {"text/plain": str(task)}
