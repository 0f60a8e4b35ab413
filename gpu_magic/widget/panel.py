"""The panel as a widget: what the page says is read here, and what it shows is sent from here."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets
from IPython.core.getipython import get_ipython

from gpu_magic.display.fallback import display_with
from gpu_magic.display.table import as_html, as_text
from gpu_magic.errors import GpuMagicError
from gpu_magic.widget import joined
from gpu_magic.widget.pending import Wish
from gpu_magic.widget.state import board

if TYPE_CHECKING:
    from gpu_magic.process.view import Snapshot

__all__ = ["Panel"]

_NONSENSE = "The page sent what is not understood; nothing was changed."
_MOST_VIEWS, _LONGEST = 64, 64  # of one panel; characters that a view is called by


class Panel(anywidget.AnyWidget):
    """A live panel: see `gpu_magic.panel`. It has nothing to set; whatever it shows, all panels show."""

    _esm = joined("dom.js", "restart.js", "chart.js", "rows.js", "store.js", "panel.js")
    _css = joined("panel.css")
    key = traitlets.Unicode().tag(sync=True)  # what the table that stands beside this panel is found by
    # Not kept here: asked of the board whenever the page wants to know.
    machine = traitlets.Any().tag(sync=True, to_json=lambda _value, panel: panel.board.snapshot())

    def __init__(self) -> None:
        self.board = board()
        self.views: dict[str, float] = {}
        self._snapshot: Snapshot = self.board.add(self, get_ipython())
        super().__init__(key=secrets.token_hex(8))
        self.on_msg(self._hear)

    def tell(self, message: dict[str, Any]) -> None:
        """Send something to the pages that show this panel."""
        if self.comm is not None:
            self.send(message)

    def close(self) -> None:
        """Close the panel, in all its pages."""
        self.board.remove(self)
        super().close()

    def set_state(self, _sync_data: dict[str, Any]) -> None:
        """Refuse: a page asks, and does not set what is shown."""
        self._answer(_NONSENSE)

    def __repr__(self) -> str:
        return as_text(self._snapshot)

    def _ipython_display_(self, **_: Any) -> None:
        display_with(self, self.key, as_html(self._snapshot), repr(self))

    def _answer(self, text: str) -> None:
        self.tell({"said": {"text": text, "kind": "error"}})

    def _handle_msg(self, msg: dict[str, Any]) -> None:
        # ipywidgets logs, in the server's terminal, what it does not understand.
        if msg["content"]["data"].get("method") not in ("update", "request_state", "custom"):
            self._answer(_NONSENSE)
        else:
            super()._handle_msg(msg)

    def _hear(self, _widget: object, message: object, _buffers: object) -> None:
        try:
            if not isinstance(message, dict) or not self._understands(message):
                self._answer(_NONSENSE)
        except GpuMagicError as error:
            self._answer(str(error))

    def _understands(self, message: dict[Any, Any]) -> bool:
        """Do what a page asks; tell whether it made sense."""
        match message:
            case {"do": "see", "view": str(view), "seen": bool(seen), "version": int(version)}:
                if view and len(view) <= _LONGEST and len(self.views) < _MOST_VIEWS:
                    self.board.look_at(self, view, is_seen=seen, version=version)
            case {"do": "draft", "wanted": str() | None as wanted, "page": str(page)}:
                self.board.draft(wanted, page)
            case {"do": "use" | "restart" as what, "wanted": str(wanted), "page": str(page)}:
                self.board.wish(Wish(wanted, what == "restart", self, page))
            case {"do": "can" | "cannot" as answer, "page": str(page)}:
                self.board.answer(page, can=answer == "can")
            case _:
                return False
        return True
