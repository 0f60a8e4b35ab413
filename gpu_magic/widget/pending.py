"""What was clicked and is yet to be done. A click only records it; the main thread does it when it is free.

Clicks reach Python at the next idle moment (ipykernel 6.30), on a thread of their own during a cell (7.3), or
either way (7.4), so what receives them can assume neither the main thread nor a free kernel.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Wish", "Wishes"]


class Wish(NamedTuple):
    """To choose GPUs.

    Parameters
    ----------
    wanted
        As behind `%gpus`.
    restart
        Whether to restart the kernel for it.
    by, page
        Who wishes it: the panel, and the one of its pages.

    """

    wanted: str
    restart: bool
    by: Any
    page: str = ""


class Wishes:
    """Keeps the latest wish, as whoever clicks twice means the second, until the main thread is free.

    Parameters
    ----------
    carry_out
        Called with a wish, on the main thread, between cells.

    """

    def __init__(self, carry_out: Callable[[Wish], None]) -> None:
        self._carry_out = carry_out
        self._lock = threading.Lock()
        self._latest: Wish | None = None
        self._shell: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._depth = 0  # of the cell that runs, as cells can run cells
        self.free_since = time.monotonic()

    @property
    def is_busy(self) -> bool:
        return self._depth > 0

    def attach(self, shell: Any) -> None:
        """Follow a shell's cells. Only its main thread knows of them, and of the loop."""
        if shell is None or not _is_main_thread():
            return
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:  # a terminal's: wishes are carried out before the next cell
            self._loop = None
        if shell is not self._shell:
            self.detach()
            self._shell, self._depth = shell, int(_is_in_cell(shell))
            # And not pre_execute, which ipykernel triggers for each message of a widget, too.
            shell.events.register("pre_run_cell", self._before_cell)
            shell.events.register("post_run_cell", self._after_cell)
        self._call_soon()

    def detach(self) -> None:
        """Leave nothing behind in the shell; a wish is kept for when we are back."""
        if self._shell is not None:
            self._shell.events.unregister("pre_run_cell", self._before_cell)
            self._shell.events.unregister("post_run_cell", self._after_cell)
        self._shell, self._depth = None, 0

    def record(self, wish: Wish) -> None:
        """Note a wish, from any thread."""
        with self._lock:
            self._latest = wish
        self._call_soon()

    def _call_soon(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._when_free)

    def _when_free(self, *, before_cell: bool = False) -> None:
        # A cell that awaits lets the loop run; its end comes here again.
        if self._shell is None or self.is_busy:
            return
        with self._lock:
            wish = self._latest
            if wish is None or (wish.restart and before_cell):  # it would be killed just after its beginning
                return
            self._latest = None
        self._carry_out(wish)

    # A subshell can run cells too, on a thread of its own: those are none of ours.

    def _before_cell(self, _info: object) -> None:
        if not _is_main_thread():
            return
        try:
            # Cells that are queued can follow each other without the loop between them.
            self._when_free(before_cell=True)
        finally:
            self._depth += 1

    def _after_cell(self, _result: object) -> None:
        if not _is_main_thread():
            return
        self._depth = max(0, self._depth - 1)
        if not self._depth:
            self.free_since = time.monotonic()
            self._call_soon()  # not at once: the watch is yet to say what this cell has started


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _is_in_cell(shell: Any) -> bool:
    """Tell whether a cell is running now, which `pre_run_cell` would have told us of before."""
    parent = getattr(shell, "parent_header", None) or {}  # the message in ipykernel 6, its header in 7
    kind: str = parent.get("header", parent).get("msg_type", "")
    return kind == "execute_request"
