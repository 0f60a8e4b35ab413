"""The restart that a page does, or where none can, the kernel itself; and `%gpus 1,3 --restart`."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import anywidget
from IPython.core.getipython import get_ipython

from gpu_magic.errors import KernelRestarting
from gpu_magic.kernel import kernel_id, restart_from_here
from gpu_magic.saved import keep
from gpu_magic.text import listed
from gpu_magic.widget import joined

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_magic.choice import Choice
    from gpu_magic.selection.options import Options

__all__ = ["Restart", "choose_or_restart"]

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


class Restarter(anywidget.AnyWidget):
    """Reaches the kernel's pages where no panel does; it is never shown."""

    _esm = joined("restart.js", "restarter.js")

    def __init__(self) -> None:
        super().__init__()
        self._restart: Restart | None = None
        self.on_msg(self._hear)

    def begin(self, shell: Any) -> None:
        """Restart the kernel."""
        self._restart = Restart(shell, self.send)

    def _hear(self, _widget: object, message: object, _buffers: object) -> None:
        match message:
            case {"do": "can", "page": str(page)} if self._restart:
                self._restart.can(page)
            case {"do": "cannot", "page": str(page)} if self._restart:
                self._restart.cannot(page)


def choose_or_restart(wanted: str, options: Options, *, dry_run: bool = False) -> Choice:
    """Choose; where it is too late for that, keep the choice and restart the kernel.

    Raises
    ------
    ChoiceError
        For what can't be chosen, or where there is no kernel to restart; nothing was changed.
    KernelRestarting
        The choice is kept, and the kernel about to go.

    """
    choice = keep(wanted, options, dry_run=dry_run)
    if dry_run or not choice.refusal:
        return choice
    what = listed((device.label for device in choice.devices), "no GPU")
    text = f"Restarting the kernel; the next %load_ext gpu_magic chooses {what}."
    if choice.is_reset:
        text = "Restarting the kernel, to be as it was started."
    Restarter().begin(get_ipython())
    raise KernelRestarting(text)
