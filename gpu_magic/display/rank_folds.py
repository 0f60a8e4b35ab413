"""What the ranks of a command have written, once it has ended: a fold for each, as HTML and as text."""

from __future__ import annotations

import io
import re
from html import escape
from typing import TYPE_CHECKING

from gpu_magic.display.task_output import RankLines, last_state
from gpu_magic.text import counted

if TYPE_CHECKING:
    from gpu_magic.launching.task import Task

__all__ = ["RankFolds", "as_pre"]

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
