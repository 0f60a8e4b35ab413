"""Delays interrupts during steps that must not stop half-way."""

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
    """Mark code that no user has started or can interrupt: Tab completion, panel updates, shell hooks."""
    token = _is_unasked.set(True)
    try:
        yield
    finally:
        _is_unasked.reset(token)


def is_unasked() -> bool:
    """Return whether this runs in a block of `unasked`, which must end quickly."""
    return _is_unasked.get()


@contextlib.contextmanager
def uninterrupted(is_open: Callable[[FrameType | None], bool] = lambda _: False) -> Iterator[list[int]]:
    """Delay an interrupt that arrives in the block to the block's end, also if an error ends the block.

    Other threads than the main thread get no interrupts, so there the block runs unchanged. It also runs
    unchanged if SIGINT is ignored or ends the process.

    Parameters
    ----------
    is_open
        Whether an interrupt can be raised at once in a frame.

    Yields
    ------
    list
        The signals that have arrived and were not raised. A block that clears the list drops the signals.

    """
    received: list[int] = []
    handler = signal.getsignal(signal.SIGINT)  # None: C code has installed the handler
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
    """Delay an interrupt that arrives in the block until a moment after the block.

    This is for hooks of a shell. IPython shows an error of a hook and continues, but the interrupt is meant
    for the cell that runs next. If no cell runs then, the kernel ignores the interrupt.
    """
    try:
        with uninterrupted(), unasked():
            yield
    except KeyboardInterrupt:
        is_over = threading.Event()  # starting a thread can take longer than `_MOMENT`
        threading.Thread(target=_interrupt_main, args=[is_over], daemon=True).start()
        is_over.set()


def _interrupt_main(is_over: threading.Event) -> None:
    """Interrupt the main thread a moment after an event, also if the thread waits in a system call."""
    is_over.wait()
    time.sleep(_MOMENT)
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)
