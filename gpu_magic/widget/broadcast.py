"""What is sent to all panels, and what of it a page must not miss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.widget.kernel_messages import Changes, Draft, Notice, Waiting

if TYPE_CHECKING:
    from collections.abc import Iterable
    from threading import RLock

    from gpu_magic.widget.kernel_messages import KernelMessage
    from gpu_magic.widget.page_state import NoticeKind
    from gpu_magic.widget.viewers import Viewers

__all__ = ["Broadcast"]


class Broadcast:
    """Sends messages to all panels that are visible. Its methods can be called on any thread.

    Parameters
    ----------
    lock
        `PanelState`'s, which is held while messages are sent.
    viewers
        The panels.

    Attributes
    ----------
    version
        How many messages were sent that a page must not miss.
    said
        As in `FullState`.

    """

    def __init__(self, lock: RLock, viewers: Viewers) -> None:
        self._lock, self._viewers = lock, viewers
        self.version = 0
        self.said: tuple[str, NoticeKind, list[str]] = ("", "info", [])

    def send(self, message: KernelMessage) -> None:
        """Send a message that a page can miss."""
        with self._lock:
            self._viewers.send(message)

    def publish(self, message: Changes | Draft | Notice | Waiting) -> None:
        """Send a message that a page must not miss, with its version."""
        with self._lock:
            self.version += 1
            self._viewers.send(message._replace(version=self.version))

    def notify(self, text: str, kind: NoticeKind, warnings: Iterable[str] = ()) -> None:
        """Show a text in every panel."""
        with self._lock:
            self.said = text, kind, list(warnings)
            self.publish(Notice(*self.said, 0))

    def forget_done(self) -> None:
        """Say no more what a choice has done: something else has happened, a choice by typing for example."""
        if self.said[1] == "done":
            self.notify("", "info")
