"""What the ranks of a command write, while it runs: a tab for each."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ipywidgets import HTML, Label, Layout, Tab, VBox

from gpu_magic.launch.output import as_pre

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_magic.launch.output import Output
    from gpu_magic.launch.task import Task

__all__ = ["RankTabs"]

_MOST_SHOWN = 16 << 10  # characters of each rank: a page has all of them sent again and again
_SHORTEST = 0.25  # seconds between two updates
_MOST_SENT = 300e3  # characters a second: a Jupyter server drops what exceeds 1 MB


class RankTabs:
    """Shows the end of what each rank has written so far, and a line that says what their GPUs do.

    The pages that show it follow the end of each text, unless somebody has scrolled up there.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        # What launchers write themselves stands last.
        self._outputs = sorted(task.outputs, key=lambda output: not output.is_rank)
        self._texts = {output.label: "" for output in self._outputs}
        self._changed: set[str] = set()
        self._pages = {output.label: HTML(layout=_following()) for output in self._outputs}
        self._tabs = Tab(children=tuple(self._pages.values()), selected_index=0)
        for place, output in enumerate(self._outputs):
            self._tabs.set_title(place, output.title)
        self._line = Label(str(task))
        self._box = VBox((self._line, self._tabs))
        self._due = 0.0

    def bundle(self) -> dict[str, Any]:
        """Return what a notebook shows: the tabs, and the line where there is no page for them."""
        view = {"version_major": 2, "version_minor": 0, "model_id": self._box.model_id}
        return {"application/vnd.jupyter.widget-view+json": view, "text/plain": str(self._task)}

    def show(self, pieces: Iterable[tuple[Output, str]]) -> None:
        """Take in what was written; update the pages now and then, so call it often."""
        for output, text in pieces:
            self._texts[output.label] = (self._texts[output.label] + text)[-_MOST_SHOWN:]
            self._changed.add(output.label)
        if time.monotonic() < self._due:
            return
        self._line.value = str(self._task)
        for label in self._changed:
            self._pages[label].value = as_pre(self._texts[label])
        sent = sum(len(self._texts[label]) for label in self._changed)
        self._changed.clear()
        self._due = time.monotonic() + max(_SHORTEST, sent / _MOST_SENT)

    def close(self) -> None:
        """Remove it from the pages."""
        for widget in (*self._pages.values(), self._tabs, self._line, self._box):
            # Each has made others, which ipywidgets keeps.
            for part in (widget.layout, getattr(widget, "style", None)):
                if part is not None:
                    part.close()
            widget.close()


def _following() -> Layout:
    # A column that begins at its end stays there while it grows.
    return Layout(max_height="24em", overflow="auto", display="flex", flex_flow="column-reverse")
