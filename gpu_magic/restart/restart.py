"""A restart under way, and who does it: a page through its server, or if no page can, the kernel itself.

A page is asked first, as its server restarts a kernel without JupyterLab's "appears to have died". At most
one page does it: the page on which it was clicked, or the first to answer that it can.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_magic.process.environment import connection_file

if TYPE_CHECKING:
    from collections.abc import Callable

    # Is given the server's id of this kernel, and the page that is to restart it; empty: asks which page can.
    AskPages = Callable[[str, str], None]

__all__ = ["answer", "begin"]

_ANSWER_SECONDS = 3.0  # for a page to answer that it can
_RESTART_SECONDS = 12.0  # for it to do so; it gives up before (store.js)

_log = logging.getLogger("gpu_magic.restart")
_under_way: _Restart | None = None


def begin(shell: Any, ask_pages: AskPages, page: str = "") -> None:
    """Restart the kernel, by a page or by the first that can. Called on the main thread."""
    global _under_way  # noqa: PLW0603 - a process is restarted once
    _log.info("The kernel is restarted")
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # no event loop, so no page could answer
        shell.kernel.do_shutdown(True)
    else:
        _under_way = _Restart(shell, ask_pages, page, loop)


def answer(page: str, *, can: bool) -> None:
    """Note that a page can restart the kernel, or has failed to. Can be called on any thread."""
    if _under_way is not None:
        _under_way.answer(page, can=can)


class _Restart:
    """One restart. Its lock guards which page does it; the timer is set on the main thread alone."""

    def __init__(self, shell: Any, ask_pages: AskPages, page: str, loop: asyncio.AbstractEventLoop) -> None:
        self._shell, self._ask_pages, self._page, self._loop = shell, ask_pages, page, loop
        self._lock = threading.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._from_here_after(_ANSWER_SECONDS)
        self._ask(page)

    def answer(self, page: str, *, can: bool) -> None:
        """Choose the first page that can; if the chosen one has failed, let the kernel restart itself."""
        with self._lock:
            is_first = can and not self._page
            if is_first:
                self._page = page
            is_chosen = page == self._page
        if is_first:
            self._ask(page)
        if is_chosen:
            self._loop.call_soon_threadsafe(self._from_here_after, _RESTART_SECONDS if can else 0.0)

    def _ask(self, page: str) -> None:
        name = Path(connection_file()).stem  # with the server's id of the kernel, if it names the file
        self._ask_pages(name.removeprefix("kernel-") if name.startswith("kernel-") else "", page)

    def _from_here_after(self, seconds: float) -> None:
        """End the kernel after some seconds, unless it is gone; whoever started it starts it again."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._shell.kernel.do_shutdown, True)
