"""A wait for GPUs that others have, which was begun in a panel; cells run meanwhile."""

from __future__ import annotations

import atexit
import contextlib
import threading
from typing import TYPE_CHECKING

from gpu_magic.errors import GpuMagicError
from gpu_magic.gpus.options import split_request
from gpu_magic.gpus.wait import Waiting
from gpu_magic.process.session import current
from gpu_magic.widget import kernel_messages
from gpu_magic.widget.page_messages import Choose
from gpu_magic.widget.pending import WaitingChoice

if TYPE_CHECKING:
    from threading import RLock

    from gpu_magic.widget.broadcast import Broadcast
    from gpu_magic.widget.idle import IdleCallback
    from gpu_magic.widget.page_state import NoticeKind
    from gpu_magic.widget.viewers import Viewer

__all__ = ["PanelWait"]

_FIRST_LOOK = "Looking who has them."
_OTHER_CHOICE = "The waiting has ended, as another choice was made."
_LONGEST_STOP = 0.5  # seconds


class PanelWait:
    """Waits until nobody else has some GPUs, and then has them chosen; one wait for all panels.

    It looks on a thread of its own. Where they are free, `take` returns the choice, which is made on the main
    thread as every other one. Its methods can be called on any thread.

    Parameters
    ----------
    lock
        `PanelState`'s, which guards what is kept here. Nothing is read while it is held.
    broadcast, idle
        Its parts.

    Attributes
    ----------
    text
        Who has them, and since when, as panels show it; empty where nothing is waited for.

    """

    def __init__(self, lock: RLock, broadcast: Broadcast, idle: IdleCallback) -> None:
        self._lock, self._broadcast, self._idle = lock, broadcast, idle
        self._latest: _Wait | None = None
        self.text = ""
        # A daemon thread that writes to a kernel's sockets while Python shuts down can crash it.
        atexit.register(self._end_thread)

    def start(self, viewer: Viewer, request: str) -> None:
        """Begin to wait, in place of what is waited for.

        Raises
        ------
        ChoiceError
            This is nothing to wait for.

        """
        devices, options = split_request(request)
        wait = _Wait(Waiting(current(), devices, options, None), request, viewer)
        with self._lock:
            if self.is_for(request):
                return
            self.stop()
            self._latest = wait
            self._show(_FIRST_LOOK)
            wait.thread = threading.Thread(target=self._run, args=(wait,), name="gpu_magic-wait", daemon=True)
            wait.thread.start()

    def is_for(self, request: str | None) -> bool:
        """Return whether this is what is waited for."""
        return self._latest is not None and self._latest.request == request

    def stop(self) -> None:
        """Wait no longer; nothing is changed."""
        with self._lock:
            if self._latest is not None:
                self._latest.ended.set()
                self._latest = None
                self._show("")

    def take(self) -> WaitingChoice | None:
        """Return the choice, where it can be made now; end the wait where another one was made meanwhile."""
        with self._lock:
            wait = self._latest
            if wait is None:
                return None
            if current().chosen is not wait.chosen:
                self._end(wait, _OTHER_CHOICE, "info")
                return None
            is_ready, wait.is_ready = wait.is_ready, False
            return wait.choice if is_ready else None

    def go_on(self, holders: str) -> None:
        """Wait on, as somebody else was faster."""
        with self._lock:
            if self._latest is not None:
                self._latest.waiting.holders = holders
                self._show(self._latest.text)

    def _run(self, wait: _Wait) -> None:
        try:
            while True:
                try:
                    is_ready = wait.waiting.look()
                except GpuMagicError as error:
                    return self._end(wait, str(error), "error")
                except Exception as error:  # noqa: BLE001 - there is no cell to show it
                    text = f"The waiting has ended: {type(error).__name__}: {error}"
                    return self._end(wait, text, "error")
                with self._lock:
                    if self._latest is not wait:
                        return None
                    wait.is_ready = is_ready
                    self._show(wait.text)
                if is_ready:
                    self._idle.request()
                if wait.ended.wait(wait.waiting.next_pause()):
                    return None
        finally:
            wait.waiting.leave()

    def _end(self, wait: _Wait, text: str, kind: NoticeKind) -> None:
        """End a wait, and say why; not where it was ended already."""
        with self._lock:
            if self._latest is wait:
                self.stop()
                self._broadcast.notify(text, kind)

    def _show(self, text: str) -> None:
        self.text = text
        self._broadcast.publish(kernel_messages.Waiting(text, 0))

    def _end_thread(self) -> None:
        """End the thread, as Python ends; wait for a look that is under way, half a second at most."""
        wait, self._latest = self._latest, None
        if wait is not None and wait.thread is not None:
            wait.ended.set()
            with contextlib.suppress(RuntimeError):  # in a forked child
                wait.thread.join(_LONGEST_STOP)


class _Wait:
    """One wait.

    Parameters
    ----------
    waiting
        What it waits for.
    request
        As one would type it, with options.
    viewer
        The panel on which it was begun.

    Attributes
    ----------
    is_ready
        Whether the GPUs were free at the last look.
    chosen
        What this process had chosen when it was begun.

    """

    def __init__(self, waiting: Waiting, request: str, viewer: Viewer) -> None:
        self.waiting, self.request = waiting, request
        self.choice = WaitingChoice(Choose(request, restart=False, page=""), viewer, only_free=True)
        self.chosen = current().chosen
        self.ended = threading.Event()
        self.is_ready = False
        self.thread: threading.Thread | None = None

    @property
    def text(self) -> str:
        if self.is_ready:
            return f"{self.waiting.wanted}: free, and chosen when the kernel is."
        return f"{self.waiting.progress}."
