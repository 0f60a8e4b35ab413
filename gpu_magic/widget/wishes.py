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
    by
        Who wishes it, to be told what became of it.

    """

    wanted: str
    restart: bool
    by: Any


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
        self.is_busy = False
        self.free_since = time.monotonic()

    def attach(self, shell: Any) -> None:
        """Follow a shell's cells; the first call has to be on its main thread."""
        if shell is None or shell is self._shell:
            return
        self.detach()
        self._shell = shell
        self.is_busy = _is_in_cell(shell)
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:  # a terminal's: wishes are carried out before the next cell
            self._loop = None
        # And not pre_execute, which ipykernel triggers for each message of a widget, too.
        shell.events.register("pre_run_cell", self._before_cell)
        shell.events.register("post_run_cell", self._after_cell)

    def detach(self) -> None:
        """Leave nothing behind in the shell; what was not carried out is dropped."""
        if self._shell is not None:
            self._shell.events.unregister("pre_run_cell", self._before_cell)
            self._shell.events.unregister("post_run_cell", self._after_cell)
        self._shell = self._loop = self._latest = None
        self.is_busy = False

    def record(self, wish: Wish) -> None:
        """Note a wish, from any thread."""
        with self._lock:
            self._latest = wish
        self._call_soon()

    def _call_soon(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._when_free)

    def _when_free(self) -> None:
        if self.is_busy:  # a cell that awaits lets the loop run; its end comes here again
            return
        with self._lock:
            wish, self._latest = self._latest, None
        if wish is not None:
            self._carry_out(wish)

    # A subshell can run cells too, on a thread of its own: those are none of ours.

    def _before_cell(self, _info: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self._when_free()  # cells that are queued can follow each other without the loop between them
        self.is_busy = True

    def _after_cell(self, _result: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        # Not at once: the watch is yet to say what this cell has started.
        self.is_busy, self.free_since = False, time.monotonic()
        self._call_soon()


def _is_in_cell(shell: Any) -> bool:
    """Tell whether a cell is running now, which `pre_run_cell` would have told us of before."""
    parent = getattr(shell, "parent_header", None) or {}  # the message in ipykernel 6, its header in 7
    kind: str = parent.get("header", parent).get("msg_type", "")
    return kind == "execute_request"
