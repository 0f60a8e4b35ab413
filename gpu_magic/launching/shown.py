"""What the ranks of a command have written: as lines behind their numbers, and as folds."""

from __future__ import annotations

import io
import re
import time
from html import escape
from typing import TYPE_CHECKING

from gpu_magic.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

    from gpu_magic.launching.output import Output
    from gpu_magic.launching.task import Task

__all__ = ["RankFolds", "RankLines", "as_pre", "last_state"]

_LONGEST = 4096  # characters of a line that has not ended


class RankLines:
    """Writes what comes in pieces from several ranks, by lines.

    A progress bar returns to the beginning of its line again and again: of that, its state is written now and
    then, and the last one.

    Parameters
    ----------
    stream
        Where to. It is flushed.
    has_ranks
        Whether there are several; what comes from one is written as it comes.
    seconds
        The time between two states of a progress bar.

    """

    def __init__(self, stream: TextIO, *, has_ranks: bool, seconds: float = 5.0) -> None:
        self._stream, self._has_ranks, self._seconds = stream, has_ranks, seconds
        self._begun: dict[str, str] = {}  # lines without an end, by rank
        self._is_within_line = False
        self._due = time.monotonic() + seconds

    def show(self, pieces: Iterable[tuple[Output, str]]) -> None:
        """Write what several ranks have written; called many times a second."""
        for output, text in pieces:
            self.add(output.label, text)
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + self._seconds
            for label in [label for label, line in self._begun.items() if "\r" in line]:
                self._write(f"{_line(label, self._begun.pop(label))}\n")

    def add(self, label: str, text: str) -> None:
        """Write what a rank has written; `label` is its number, or empty for the launcher."""
        if not text:
            return
        if not self._has_ranks:
            self._write(text)
            self._is_within_line = not text.endswith("\n")
            return
        *lines, rest = text.split("\n")
        if lines:
            lines[0] = self._begun.pop(label, "") + lines[0]
            self._write("".join(f"{_line(label, line)}\n" for line in lines))
        self._begun[label] = self._begun.get(label, "") + rest
        if len(self._begun[label]) > _LONGEST:
            self._write(f"{_line(label, self._begun.pop(label))}\n")

    def end(self) -> None:
        """Write what is left."""
        for label, line in self._begun.items():
            if line:
                self._write(f"{_line(label, line)}\n")
        self._begun.clear()
        if self._is_within_line:
            self._write("\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def last_state(line: str) -> str:
    """Return what is seen of a line in which a progress bar has returned to the beginning."""
    return line.rstrip("\r").rpartition("\r")[2]


def _line(label: str, line: str) -> str:
    return f"[{label}] {last_state(line)}" if label else last_state(line)


_MOST_SHOWN = 256 << 10  # bytes of all ranks: it stays in the notebook, and as HTML it is more
_COLORS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")  # ECMA-48's control sequences


class RankFolds:
    """What a command has written, as it is shown in a notebook and stays there.

    The fold of the rank that failed first stands first; it, or else that of rank 0, is open. `str` returns
    the lines of one rank after the other, each behind the rank's number.
    """

    def __init__(self, task: Task) -> None:
        most = _MOST_SHOWN // len(task.outputs)
        self._texts = [(output, text) for output in task.outputs if (text := output.tail(most))]
        self._failure = task.first_failure

    def __str__(self) -> str:
        text = io.StringIO()
        lines = RankLines(text, has_ranks=True)
        for output, written in self._texts:
            lines.show([(output, written)])
            lines.end()
        return text.getvalue()

    def _repr_html_(self) -> str:
        failed, traceback = self._failure or (None, "")
        ranks = sorted(self._texts, key=lambda one: (one[0] is not failed, not one[0].is_rank))
        folds = []
        for place, (output, text) in enumerate(ranks):
            error = _COLORS.sub("", traceback).splitlines()[-1:]
            what = error[0] if output is failed else counted(_lines(text), "line")
            summary = f"<summary>{escape(f'{output.title} · {what}')}</summary>"
            folds.append(f"<details{'' if place else ' open'}>{summary}{_scrolled(as_pre(text))}</details>")
        return "".join(folds)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/plain": str(self).rstrip("\n"), "text/html": self._repr_html_()}


def as_pre(text: str) -> str:
    """Return what a rank has written as HTML, without colors, progress bars in their last state."""
    lines = (last_state(line) for line in _COLORS.sub("", text).split("\n"))
    return f'<pre style="margin: 0">{escape(chr(10).join(lines))}</pre>'


def _scrolled(html: str) -> str:
    return f'<div style="max-height: 24em; overflow: auto">{html}</div>'


def _lines(text: str) -> int:
    return len(text.rstrip("\n").split("\n"))
