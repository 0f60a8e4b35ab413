"""A restart of the kernel: a page does it, through its server, or where none can, the kernel itself."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from gpu_magic.restart.kernel import kernel_id, restart_from_here

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Restart"]

_ANSWER_SECONDS = 3.0  # for a page to say that it can
_RESTART_SECONDS = 12.0  # for it to do so; it gives up before (restart.js)


class Restart:
    """One restart that is under way. Made on the main thread; pages answer on any.

    Parameters
    ----------
    shell
        The kernel's.
    tell
        Sends something to the pages.
    page
        Which of them is to do it; empty: the first that says that it can.

    """

    def __init__(self, shell: Any, tell: Callable[[dict[str, Any]], None], page: str = "") -> None:
        self._shell, self._tell, self._page = shell, tell, page
        self._lock = threading.Lock()
        self._timer: asyncio.TimerHandle | None = None
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:  # nothing runs in which a page could answer
            restart_from_here(shell)
            return
        self._wait(_ANSWER_SECONDS)
        self._name(page)

    def can(self, page: str) -> None:
        """Note that a page is able to."""
        with self._lock:
            is_first, self._page = not self._page, self._page or page
            is_it = page == self._page
        if is_first:
            self._name(page)
        if is_it:
            self._loop.call_soon_threadsafe(self._wait, _RESTART_SECONDS)

    def cannot(self, page: str) -> None:
        """Note that the page that was to do it has failed."""
        if page == self._page:
            self._loop.call_soon_threadsafe(self._wait, 0.0)

    def _name(self, page: str) -> None:
        self._tell({"restart": {"kernel": kernel_id(), "page": page}})

    def _wait(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, restart_from_here, self._shell)
