"""The output of a running command, with a tab for each rank."""

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

_MOST_SHOWN = 16 << 10  # characters of each rank, because each update sends all of them
_SHORTEST = 0.25  # seconds between two updates
_MOST_SENT = 300e3  # characters a second, because a Jupyter server drops output above 1 MB a second


class RankTabs:
    """Shows the end of each rank's output, and a line with the use of the GPUs.

    The pages scroll to the end of each text, unless the user has scrolled up.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        # The output of the launchers themselves is last.
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
        """Return the MIME bundle: the tabs, and the line for front ends without widgets."""
        view = {"version_major": 2, "version_minor": 0, "model_id": self._box.model_id}
        return {"application/vnd.jupyter.widget-view+json": view, "text/plain": str(self._task)}

    def show(self, pieces: Iterable[tuple[Output, str]]) -> None:
        """Add new output. Update the pages only at intervals, so call it often."""
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
        """Remove the tabs and the line from the pages."""
        for widget in (*self._pages.values(), self._tabs, self._line, self._box):
            # Each widget has created these, and ipywidgets keeps them.
            for part in (widget.layout, getattr(widget, "style", None)):
                if part is not None:
                    part.close()
            widget.close()


def _following() -> Layout:
    # A reversed column stays at its end while it grows.
    return Layout(max_height="24em", overflow="auto", display="flex", flex_flow="column-reverse")
