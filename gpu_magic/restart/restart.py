"""Restarts the kernel: through a page and its Jupyter server, or if no page can, from the kernel itself.

Pages are asked first, because JupyterLab shows no "appears to have died" if the server restarts the kernel.
At most one page does this: the page that was clicked, or the first that answers that it can.
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

    # Called with the server's id of this kernel, and the page that restarts it. Empty: ask which page can.
    AskPages = Callable[[str, str], None]

__all__ = ["answer", "begin"]

_ANSWER_SECONDS = 3.0  # for a page to answer that it can
_RESTART_SECONDS = 12.0  # for the page to restart the kernel; it gives up earlier (store.js)

_log = logging.getLogger("gpu_magic.restart")
_under_way: _Restart | None = None


def begin(shell: Any, ask_pages: AskPages, page: str = "") -> None:
    """Restart the kernel, by this page or by the first that can. Called on the main thread."""
    global _under_way  # noqa: PLW0603 - a process is restarted once
    _log.info("The kernel is restarted")
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # no event loop, so no page could answer
        shell.kernel.do_shutdown(True)
    else:
        _under_way = _Restart(shell, ask_pages, page, loop)


def answer(page: str, *, can: bool) -> None:
    """Note that a page can restart the kernel, or failed to. Works on any thread."""
    if _under_way is not None:
        _under_way.answer(page, can=can)


class _Restart:
    """A restart. The lock guards the page that does it. Only the main thread sets the timer."""

    def __init__(self, shell: Any, ask_pages: AskPages, page: str, loop: asyncio.AbstractEventLoop) -> None:
        self._shell, self._ask_pages, self._page, self._loop = shell, ask_pages, page, loop
        self._lock = threading.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._from_here_after(_ANSWER_SECONDS)
        self._ask(page)

    def answer(self, page: str, *, can: bool) -> None:
        """Choose the first page that can. If the chosen page failed, let the kernel restart itself."""
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
        name = Path(connection_file()).stem  # has the server's id of the kernel, if the server named the file
        self._ask_pages(name.removeprefix("kernel-") if name.startswith("kernel-") else "", page)

    def _from_here_after(self, seconds: float) -> None:
        """Shut down the kernel after some seconds. The program that started it then restarts it."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._shell.kernel.do_shutdown, True)
