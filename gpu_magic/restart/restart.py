"""A restart under way, and who does it: a page through its server, or where none can, the kernel itself.

A page is asked first, as its server restarts a kernel without JupyterLab's "appears to have died". At most
one page does it: the page on which it was clicked, or the first to answer that it can.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from gpu_magic.log import logger
from gpu_magic.restart.kernel import kernel_id, restart_from_here

if TYPE_CHECKING:
    from collections.abc import Callable

    # Is given the server's id of this kernel, and the page that is to restart it; empty: asks which page can.
    AskPages = Callable[[str, str], None]

__all__ = ["Restart", "answer", "begin"]

_ANSWER_SECONDS = 3.0  # for a page to answer that it can
_RESTART_SECONDS = 12.0  # for it to do so; it gives up before (restart.js)

_log = logger("restart")
_under_way: Restart | None = None


def begin(shell: Any, ask_pages: AskPages, page: str = "") -> None:
    """Restart the kernel; see `Restart`."""
    global _under_way  # noqa: PLW0603 - a process is restarted once
    _log.info("The kernel is restarted")
    _under_way = Restart(shell, ask_pages, page)


def answer(page: str, *, can: bool) -> None:
    """Note whether a page can restart the kernel. Can be called on any thread."""
    if _under_way is not None:
        (_under_way.can if can else _under_way.cannot)(page)


class Restart:
    """One restart. Made on the main thread; pages answer on any.

    Its lock guards which page does it. The timer is set on the main thread's event loop alone.

    Parameters
    ----------
    shell
        The kernel's.
    ask_pages
        Sends a request to the pages.
    page
        The page that is to do it; empty: the first that can.

    """

    def __init__(self, shell: Any, ask_pages: AskPages, page: str = "") -> None:
        self._shell, self._ask_pages, self._page = shell, ask_pages, page
        self._lock = threading.Lock()
        self._timer: asyncio.TimerHandle | None = None
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:  # no event loop, so no page could answer
            restart_from_here(shell)
            return
        self._restart_from_here_after(_ANSWER_SECONDS)
        self._ask(page)

    def can(self, page: str) -> None:
        """Note that a page can restart the kernel, and choose it where none is chosen yet."""
        with self._lock:
            is_first, self._page = not self._page, self._page or page
            is_chosen = page == self._page
        if is_first:
            self._ask(page)
        if is_chosen:
            self._loop.call_soon_threadsafe(self._restart_from_here_after, _RESTART_SECONDS)

    def cannot(self, page: str) -> None:
        """Note that a page has failed; where it is the chosen one, the kernel restarts itself."""
        if page == self._page:
            self._loop.call_soon_threadsafe(self._restart_from_here_after, 0.0)

    def _ask(self, page: str) -> None:
        self._ask_pages(kernel_id(), page)

    def _restart_from_here_after(self, seconds: float) -> None:
        """Have the kernel restart itself after some seconds, unless it is gone by then."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, restart_from_here, self._shell)
