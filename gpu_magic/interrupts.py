"""Holds interrupts back: around steps that must not be interrupted half-way, or but at some points."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = [
    "HeldInterrupts",
    "deferred_interrupts",
    "held_interrupts",
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
def deferred_interrupts() -> Iterator[list[int]]:
    """Defer KeyboardInterrupt: what arrives is put into the list that the block gets, to be raised after it.

    Nothing is done in other threads than the main one, where Python raises none, and where interrupts are
    ignored.
    """
    received: list[int] = []
    before = _handler()
    if before is None:
        yield received
        return
    signal.signal(signal.SIGINT, lambda number, frame: received.append(number))  # noqa: ARG005
    try:
        yield received
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def postponed_interrupts() -> Iterator[None]:
    """Run a block whole: an interrupt that arrives in it arrives again a moment after it.

    It is for hooks of a shell, which shows what they raise as an error of theirs and goes on: the interrupt
    is meant for the cell that runs then. Where none does, a kernel ignores it.
    """
    received: list[int] = []
    try:
        with deferred_interrupts() as received, unasked():
            yield
    finally:
        if received:
            is_over = threading.Event()  # starting a thread can take longer than the moment
            threading.Thread(target=_interrupt_main, args=[is_over], daemon=True).start()
            is_over.set()


class HeldInterrupts:
    """Interrupts that have arrived and were not raised yet.

    Parameters
    ----------
    handler
        What handles them otherwise: Python's own raises KeyboardInterrupt.
    can_raise
        Whether one can be raised in a frame, given how many have arrived with it.

    """

    def __init__(self, handler: Any, can_raise: Callable[[FrameType | None, int], bool]) -> None:
        self._handler, self._can_raise = handler, can_raise
        self._waiting = 0
        self._is_open = False

    def check(self) -> None:
        """Raise what waits."""
        if self._waiting:
            self._raise(None)

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Ask in this block, and not around it, whether what arrives can be raised where it does."""
        self._is_open = True
        try:
            yield
        finally:
            self._is_open = False

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Take an interrupt, as a handler of signals."""
        del number
        self._waiting += 1
        if self._is_open and self._can_raise(frame, self._waiting):
            self._raise(frame)

    def _raise(self, frame: FrameType | None) -> None:
        self._handler(signal.SIGINT, frame)
        self._waiting = 0  # it has not raised anything: a handler of the user's


@contextlib.contextmanager
def held_interrupts(can_raise: Callable[[FrameType | None, int], bool]) -> Iterator[HeldInterrupts]:
    """Hold interrupts back: they are raised where the block asks for it, else at its end, whatever ends it.

    Parameters
    ----------
    can_raise
        As for `HeldInterrupts`.

    """
    before = _handler()
    if not callable(before):  # by default it ends the process
        yield HeldInterrupts(None, can_raise)
        return
    held = HeldInterrupts(before, can_raise)
    signal.signal(signal.SIGINT, held.receive)
    try:
        yield held
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, before)
        raise
    except BaseException:
        signal.signal(signal.SIGINT, before)
        held.check()
        raise
    signal.signal(signal.SIGINT, before)
    held.check()


def uninterrupted() -> contextlib.AbstractContextManager[object]:
    """Run a block whole: an interrupt that arrives in it is raised at its end, whatever ends it."""
    return held_interrupts(lambda frame, count: False)  # noqa: ARG005


def _interrupt_main(is_over: threading.Event) -> None:
    """Interrupt the main thread a moment after something is over, also where it waits in a system call."""
    is_over.wait()
    time.sleep(_MOMENT)
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)


def _handler() -> Any:
    """Return what handles interrupts; None where Python raises none here, or they are ignored."""
    handler = signal.getsignal(signal.SIGINT)  # None: it is not Python's
    is_main = threading.current_thread() is threading.main_thread()
    return handler if is_main and handler is not signal.SIG_IGN else None
