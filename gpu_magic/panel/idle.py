"""Calls a function on the main thread when no cell runs.

Clicks reach Python when the kernel is next idle (ipykernel 6.30), on another thread during a cell (7.3), or
either way (7.4). The receiver of clicks can assume neither the main thread nor an idle kernel.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gpu_magic.interrupts import postponed_interrupts

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["IdleCallback"]


class IdleCallback:
    """Calls a function after each cell, before each cell, and soon after each `request`.

    It follows cells on the main thread. `attach`, `request`, `is_busy` and `free_since` work on any thread.
    It needs no lock, because only the main thread writes `_depth` and `free_since`.

    Parameters
    ----------
    call
        The function. Its argument says whether a cell is about to run.
    now
        The clock, in seconds.

    """

    def __init__(self, call: Callable[[bool], None], now: Callable[[], float] = time.monotonic) -> None:
        self._call, self._now = call, now
        self._shell: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._depth = 0  # of nested running cells, because cells can run cells
        self.free_since = now()  # when the last cell ended

    @property
    def is_busy(self) -> bool:
        """Whether a cell runs."""
        return self._depth > 0

    def attach(self, shell: Any) -> None:
        """Follow a shell's cells. On another thread, start as soon as the main thread is free.

        Without a shell, as in marimo, cells run in an event loop. The function is called between cells, or
        while a cell awaits. Without a shell and a loop, do nothing.
        """
        if shell is None:
            with suppress(RuntimeError):
                self._loop = asyncio.get_running_loop()
            return
        if not _is_main_thread():
            if hasattr(shell, "kernel"):
                # The loop calls this between cells, or while a cell awaits, which then counts as ended.
                shell.kernel.io_loop.add_callback(self._follow, shell, 0)
            return
        self._follow(shell, int(_is_in_cell(shell)))

    def _follow(self, shell: Any, depth: int) -> None:
        """Follow a shell's cells. `depth` is the number of nested cells that run now."""
        if shell is not self._shell:
            self.detach()
            self._shell, self._depth = shell, depth
            # Not pre_execute: ipykernel also triggers it for each message of a widget.
            shell.events.register("pre_run_cell", self._before_cell)
            shell.events.register("post_run_cell", self._after_cell)
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:  # IPython in a terminal: requests wait for the next cell
            self._loop = None
        self.request()

    def detach(self) -> None:
        """Remove the callbacks from the shell."""
        if self._shell is not None:
            self._shell.events.unregister("pre_run_cell", self._before_cell)
            self._shell.events.unregister("post_run_cell", self._after_cell)
        self._shell, self._loop, self._depth = None, None, 0

    def request(self) -> None:
        """Call the function as soon as no cell runs. Works on any thread."""
        if self._loop is not None and self._shell is None:
            self.attach(None)  # `marimo run` has a loop for each page
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._call_if_idle)

    def _call_if_idle(self, *, before_cell: bool = False) -> None:
        # The loop also runs while a cell awaits. After the cell ends, this is called again.
        is_attached = self._shell is not None or self._loop is not None
        if is_attached and not self.is_busy:
            self._call(before_cell)

    # A subshell runs its cells on another thread. These cells are ignored.

    @postponed_interrupts()
    def _before_cell(self, info: Any) -> None:
        del info
        if not _is_main_thread():
            return
        try:
            # The loop may not run between queued cells.
            self._call_if_idle(before_cell=True)
        finally:
            self._depth += 1

    @postponed_interrupts()
    def _after_cell(self, result: Any) -> None:
        # ipykernel has no result of an interrupted cell that awaits. A blank cell triggers no pre_run_cell.
        if not _is_main_thread() or (result is not None and _is_blank(result.info.raw_cell)):
            return
        self._depth = max(0, self._depth - 1)
        if not self._depth:
            self.free_since = self._now()
            self.request()  # not called here, because the watch has not yet noted what this cell started


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _is_blank(text: str) -> bool:
    return not text or text.isspace()


def _is_in_cell(shell: Any) -> bool:
    """Return whether a cell runs whose `pre_run_cell` came before `attach`."""
    parent = getattr(shell, "parent_header", None) or {}  # the message in ipykernel 6, its header in 7
    kind: str = parent.get("header", parent).get("msg_type", "")
    return kind == "execute_request"
