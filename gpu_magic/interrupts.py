"""Holds interrupts back around steps that must not be interrupted half-way."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = [
    "is_unasked",
    "postponed_interrupts",
    "unasked",
    "uninterrupted",
]

_MOMENT = 0.01  # seconds
_is_unasked = ContextVar("gpu_magic_is_unasked", default=False)


@contextlib.contextmanager
def unasked() -> Iterator[None]:
    """Mark what nobody has typed and nobody can interrupt: Tab, a panel's reading, a hook of a shell."""
    token = _is_unasked.set(True)
    try:
        yield
    finally:
        _is_unasked.reset(token)


def is_unasked() -> bool:
    """Return whether this runs in a block of `unasked`, which is to make nobody wait for long."""
    return _is_unasked.get()


@contextlib.contextmanager
def uninterrupted(is_open: Callable[[FrameType | None], bool] = lambda _: False) -> Iterator[list[int]]:
    """Run a block whole: an interrupt that arrives in it is raised at its end, whatever ends it.

    Nothing is done in other threads than the main one, where Python raises none, and where interrupts are
    ignored or end the process.

    Parameters
    ----------
    is_open
        Whether one can be raised in a frame.

    Yields
    ------
    list
        What has arrived and was not raised; a block that clears it drops that.

    """
    received: list[int] = []
    handler = signal.getsignal(signal.SIGINT)  # None: it is not Python's
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield received
        return

    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if is_open(frame):
            received.clear()
            handler(number, frame)

    signal.signal(signal.SIGINT, receive)
    try:
        yield received
    finally:
        signal.signal(signal.SIGINT, handler)
        if received:
            handler(signal.SIGINT, None)


@contextlib.contextmanager
def postponed_interrupts() -> Iterator[None]:
    """Run a block whole: an interrupt that arrives in it arrives again a moment after it.

    It is for hooks of a shell, which shows what they raise as an error of theirs and goes on: the interrupt
    is meant for the cell that runs then. Where none does, a kernel ignores it.
    """
    try:
        with uninterrupted(), unasked():
            yield
    except KeyboardInterrupt:
        is_over = threading.Event()  # starting a thread can take longer than the moment
        threading.Thread(target=_interrupt_main, args=[is_over], daemon=True).start()
        is_over.set()


def _interrupt_main(is_over: threading.Event) -> None:
    """Interrupt the main thread a moment after something is over, also where it waits in a system call."""
    is_over.wait()
    time.sleep(_MOMENT)
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)
