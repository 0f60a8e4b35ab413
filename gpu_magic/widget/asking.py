"""What panels ask others for, and answer those who ask; and what is said of their replies."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from gpu_magic.display.asking import Asked, GivenUp, Kept
from gpu_magic.display.memory import Freed
from gpu_magic.display.notes import reply_text
from gpu_magic.errors import GpuMagicError
from gpu_magic.moving.free import free
from gpu_magic.moving.history import History as Outputs
from gpu_magic.process import asking
from gpu_magic.process.news import News, note_told, read_replies
from gpu_magic.process.session import current
from gpu_magic.widget.page_messages import Ask, Keep

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_magic.process.view import Snapshot
    from gpu_magic.widget.broadcast import Broadcast
    from gpu_magic.widget.idle import IdleCallback
    from gpu_magic.widget.page_messages import GiveUp
    from gpu_magic.widget.page_state import NoticeKind

__all__ = ["PanelAsking"]


class PanelAsking:
    """Asks and answers between cells. Its methods can be called on any thread, `when_idle` on the main one.

    Parameters
    ----------
    broadcast, idle
        `PanelState`'s parts.
    read
        Reads the machine, and has panels show it.

    """

    def __init__(self, broadcast: Broadcast, idle: IdleCallback, *, read: Callable[[], object]) -> None:
        self._broadcast, self._idle, self._read = broadcast, idle, read
        self._lock = threading.Lock()
        self._wanted: Ask | GiveUp | Keep | None = None  # the latest click
        self._is_acting = False

    def do(self, message: Ask | GiveUp | Keep) -> None:
        """Ask, or answer, as soon as no cell runs."""
        with self._lock:
            self._wanted = message
        self._idle.request()

    def when_idle(self, shell: Any) -> None:
        """Do what was clicked; between cells."""
        with self._lock:
            message, self._wanted = self._wanted, None
        if message is None:
            return
        self._is_acting = True
        text, kind = _carry_out(message, shell)
        try:
            # Before it is said, as what a later reading shows is not its doing.
            self._read()
        except GpuMagicError:
            pass  # the next reading says so
        finally:
            self._broadcast.notify(text, kind)
            self._is_acting = False

    def tell_replies(self, snapshot: Snapshot) -> None:
        """Say in all panels what others have replied, if they have; after each reading of the machine."""
        session = current()
        if self._is_acting:  # what has been done is said first, and then what others reply
            return
        if replies := read_replies(session, snapshot):
            self._broadcast.notify("\n".join(map(reply_text, replies)), "info")
            note_told(session, "panel", News(replies=replies))


def _carry_out(message: Ask | GiveUp | Keep, shell: Any) -> tuple[str, NoticeKind]:
    """Ask or answer; return what to say, and as what."""
    try:
        return _do(message, shell), "done"
    except GpuMagicError as error:
        return str(error), "error"
    except Exception as error:  # noqa: BLE001 - there is no cell to show it
        return f"That has failed: {type(error).__name__}: {error}", "error"


def _do(message: Ask | GiveUp | Keep, shell: Any) -> str:
    session = current()
    if isinstance(message, Ask):
        return repr(Asked(asking.ask(session, message.request, "")))
    if isinstance(message, Keep):
        return repr(Kept(asking.keep(session)))
    giving = asking.give_up(session, None)
    return repr(GivenUp(giving, Freed.of(free(Outputs(shell))) if giving.outcome is None else None))
