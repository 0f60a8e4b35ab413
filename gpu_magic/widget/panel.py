"""The panel as a widget: takes messages from its pages to the state that all panels show, and back."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets
from IPython.core.getipython import get_ipython

from gpu_magic.gpus.table import as_html, as_text
from gpu_magic.process.environment import launch_environment
from gpu_magic.process.front_end import Missing, missing_there, read_front_end
from gpu_magic.public import public
from gpu_magic.text import printable
from gpu_magic.widget.fallback import display_with_fallback
from gpu_magic.widget.front_end import script, style
from gpu_magic.widget.kernel_messages import to_json
from gpu_magic.widget.leftovers import CellRun, cell_run, leftovers
from gpu_magic.widget.requests import NOT_UNDERSTOOD, answer
from gpu_magic.widget.state import panel_state

if TYPE_CHECKING:
    from gpu_magic.process.view import Snapshot
    from gpu_magic.widget.kernel_messages import KernelMessage

__all__ = ["Panel", "panel"]

_log = logging.getLogger("gpu_magic.widget")
_latest: dict[str, str] = {}  # by its id, the latest run of a cell that has shown a panel


class Panel(anywidget.AnyWidget):
    """A live panel; see `gpu_magic.panel`. It has no settings: all panels of a process show the same."""

    is_widget = True
    _esm = script()
    _css = style()
    key = traitlets.Unicode().tag(sync=True)  # by which a page finds the static fallback of this panel
    # Its value is not kept: a page that asks for it gets the state of that moment.
    full_state = traitlets.Any().tag(sync=True, to_json=lambda _value, panel: panel.state.full_state())

    def __init__(self) -> None:
        self.shown: dict[str, str] = {}  # the cells that have displayed it, and in which run
        self.state = panel_state()
        self._snapshot: Snapshot = self.state.add(self, get_ipython())
        super().__init__(key=secrets.token_hex(8))
        self.on_msg(self._receive)

    def tell(self, message: KernelMessage) -> None:
        """Send a message to the pages that have this panel."""
        if self.comm is not None:
            self.send(to_json(message))

    def close(self) -> None:
        """Close the panel in all its pages."""
        self.state.remove(self)
        super().close()

    def set_state(self, _sync_data: dict[str, Any]) -> None:
        """Refuse: a page asks by messages, and sets nothing."""
        self._refuse(NOT_UNDERSTOOD)

    def __repr__(self) -> str:
        return as_text(self._snapshot)

    def _ipython_display_(self, **_: Any) -> None:
        problem, mend = self._missing() or ("", "")
        if problem:
            _log.info("A panel was shown as a table. %s", printable(problem))
        display_with_fallback(self, self.key, as_html(self._snapshot), repr(self), problem=problem, mend=mend)
        run = cell_run(get_ipython())
        self.shown[run.cell] = _latest[run.cell] = run.request

    def _missing(self) -> Missing | None:
        """Return what the Jupyter server lacks to show it; None where pages answer, or nothing is known."""
        _, has_answered = self.state.pages()
        front = read_front_end(launch_environment())
        return None if has_answered else missing_there(front, anywidget.__version__)

    def close_if_left(self, shell: Any) -> None:
        """Close it where a later run of its cell has shown another one, unless something holds it."""
        if len(self.shown) == 1:
            (cell,) = self.shown
            for left in leftovers([self], CellRun(cell, _latest[cell]), shell):
                left.close()

    def _refuse(self, text: str) -> None:
        self.state.refuse(self, text)

    def _handle_msg(self, msg: dict[str, Any]) -> None:
        # ipywidgets logs unknown methods in the server's terminal.
        if msg["content"]["data"].get("method") not in ("update", "request_state", "custom"):
            self._refuse(NOT_UNDERSTOOD)
        else:
            super()._handle_msg(msg)

    def _receive(self, _widget: object, message: object, _buffers: object) -> None:
        answer(self.state, self, message)


@public
def panel() -> Panel:
    """Return a live panel of the GPUs, to choose them by clicking: the last line of a cell shows it.

    Returns
    -------
    Panel
        A widget. All panels of a process show the same, and are read by one thread, while a page shows one.

    """
    return Panel()
