"""Calls a function on the main thread when no cell runs.

Clicks reach Python at the next idle moment (ipykernel 6.30), on a thread of their own during a cell (7.3), or
either way (7.4), so that what receives them can assume neither the main thread nor an idle kernel.
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

    It learns of cells on the main thread; `attach`, `request`, `is_busy` and `free_since` can be used on any.
    Has no lock: `_depth` and `free_since` are written on the main thread only.

    Parameters
    ----------
    call
        What is called; its argument says whether a cell is about to run.

    """

    def __init__(self, call: Callable[[bool], None]) -> None:
        self._call = call
        self._shell: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._depth = 0  # of the running cell, as cells can run cells
        self.free_since = time.monotonic()  # when the last cell ended

    @property
    def is_busy(self) -> bool:
        """Whether a cell runs."""
        return self._depth > 0

    def attach(self, shell: Any) -> None:
        """Follow a shell's cells; on another thread than the main one, as soon as that is free.

        Without a shell, as in marimo, cells run in an event loop: what it calls comes between them, or while
        one awaits. Without a loop either, do nothing.
        """
        if shell is None:
            with suppress(RuntimeError):
                self._loop = asyncio.get_running_loop()
            return
        if not _is_main_thread():
            if hasattr(shell, "kernel"):
                # The loop calls between cells, or while a cell awaits: that one is then taken to have ended.
                shell.kernel.io_loop.add_callback(self._follow, shell, 0)
            return
        self._follow(shell, int(_is_in_cell(shell)))

    def _follow(self, shell: Any, depth: int) -> None:
        """Follow a shell's cells; `depth` is of the one that runs."""
        if shell is not self._shell:
            self.detach()
            self._shell, self._depth = shell, depth
            # Not pre_execute, which ipykernel triggers for each message of a widget, too.
            shell.events.register("pre_run_cell", self._before_cell)
            shell.events.register("post_run_cell", self._after_cell)
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:  # IPython in a terminal: requests wait for the next cell
            self._loop = None
        self.request()

    def detach(self) -> None:
        """Leave nothing in the shell."""
        if self._shell is not None:
            self._shell.events.unregister("pre_run_cell", self._before_cell)
            self._shell.events.unregister("post_run_cell", self._after_cell)
        self._shell, self._loop, self._depth = None, None, 0

    def request(self) -> None:
        """Have the function called as soon as no cell runs. Can be called on any thread."""
        if self._loop is not None and self._shell is None:
            self.attach(None)  # `marimo run` has a loop for each page
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._call_if_idle)

    def _call_if_idle(self, *, before_cell: bool = False) -> None:
        # A cell that awaits lets the loop run; after its end this is called again.
        is_attached = self._shell is not None or self._loop is not None
        if is_attached and not self.is_busy:
            self._call(before_cell)

    # A subshell runs its cells on a thread of its own: those are ignored.

    @postponed_interrupts()
    def _before_cell(self, info: Any) -> None:
        del info
        if not _is_main_thread():
            return
        try:
            # Between cells that are queued, the loop may not run.
            self._call_if_idle(before_cell=True)
        finally:
            self._depth += 1

    @postponed_interrupts()
    def _after_cell(self, result: Any) -> None:
        # ipykernel has no result of an interrupted cell that awaits; nothing begins where a cell is blank.
        if not _is_main_thread() or (result is not None and _is_blank(result.info.raw_cell)):
            return
        self._depth = max(0, self._depth - 1)
        if not self._depth:
            self.free_since = time.monotonic()
            self.request()  # and not here: the watch has yet to note what this cell has started


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _is_blank(text: str) -> bool:
    return not text or text.isspace()


def _is_in_cell(shell: Any) -> bool:
    """Return whether a cell runs now, one whose `pre_run_cell` came before we were attached."""
    parent = getattr(shell, "parent_header", None) or {}  # the message in ipykernel 6, its header in 7
    kind: str = parent.get("header", parent).get("msg_type", "")
    return kind == "execute_request"
