"""Delays interrupts during steps that must not stop half-way."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # `signal` takes 15 times as long, as it makes enums
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
    "defer_interrupts",
    "in_background",
    "is_in_background",
    "postponed_interrupts",
]

_MOMENT = 0.01  # seconds
_is_in_background = ContextVar("gpu_magic_in_background", default=False)


@contextlib.contextmanager
def in_background() -> Iterator[None]:
    """Mark code that no user waits for and nobody can interrupt: Tab completion, panel updates, hooks.

    Calls of the driver give up quickly in this code.
    """
    token = _is_in_background.set(True)
    try:
        yield
    finally:
        _is_in_background.reset(token)


def is_in_background() -> bool:
    """Return whether this runs in a block of `in_background`, which must end quickly."""
    return _is_in_background.get()


@contextlib.contextmanager
def defer_interrupts(allowed_in: Callable[[FrameType | None], bool] = lambda _: False) -> Iterator[list[int]]:
    """Delay an interrupt that arrives in the block to the block's end, also if an error ends the block.

    Other threads than the main thread get no interrupts, so there the block runs unchanged. It also runs
    unchanged if SIGINT is ignored or ends the process.

    Parameters
    ----------
    allowed_in
        Whether an interrupt that arrives in a frame is raised at once.

    Yields
    ------
    list
        The signals that have arrived and were not raised. A block that clears the list drops the signals.

    """
    received: list[int] = []
    handler = _signal.getsignal(signal.SIGINT)  # None: C code has installed the handler
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield received
        return

    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if allowed_in(frame):
            received.clear()
            handler(number, frame)

    _signal.signal(signal.SIGINT, receive)
    try:
        yield received
    finally:
        _signal.signal(signal.SIGINT, handler)
        if received:
            handler(signal.SIGINT, None)


@contextlib.contextmanager
def postponed_interrupts() -> Iterator[None]:
    """Delay an interrupt that arrives in the block until a moment after the block.

    This is for hooks of a shell. IPython shows an error of a hook and continues, but the interrupt is meant
    for the cell that runs next. If no cell runs then, the kernel ignores the interrupt.
    """
    try:
        with defer_interrupts(), in_background():
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
