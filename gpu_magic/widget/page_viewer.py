"""The pages that have found this kernel by its comm: together they are one viewer, as a panel's pages are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.getipython import get_ipython

from gpu_magic.errors import GpuMagicError
from gpu_magic.interrupts import unasked
from gpu_magic.widget.front_end import script, style
from gpu_magic.widget.kernel_messages import Attached, Closed, to_json
from gpu_magic.widget.page_messages import Attach, parse
from gpu_magic.widget.requests import answer
from gpu_magic.widget.state import panel_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_magic.widget.kernel_messages import KernelMessage

__all__ = ["PageViewer"]


class PageViewer:
    """Answers the pages.

    Parameters
    ----------
    send
        Sends a message to all of them.

    """

    is_widget = False  # its script comes by the comm

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send = send
        self._is_added = False
        self._state = panel_state()

    def tell(self, message: KernelMessage) -> None:
        """Send a message to the pages."""
        self._send(to_json(message))

    def close_if_left(self, shell: Any) -> None:
        """Stay: a page can come at any time."""

    @unasked()
    def receive(self, message: object) -> None:
        """Take a message from a page."""
        try:
            self._add()
        except GpuMagicError as error:  # a simulation that is described in words that are not understood
            self._state.refuse(self, str(error))
        match parse(message):
            case Attach(page):
                self.tell(Attached(page, script(), style(), self._state.full_state()))
            case _:
                answer(self._state, self, message)

    def close(self) -> None:
        """Let the pages go."""
        self._state.remove(self)
        self._is_added = False
        self.tell(Closed())

    def _add(self) -> None:
        if not self._is_added:
            self._state.add(self, get_ipython())
            self._is_added = True
