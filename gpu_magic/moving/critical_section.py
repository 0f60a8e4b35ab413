"""Context managers around steps that must not be interrupted half-way."""

from __future__ import annotations

import contextlib
import gc
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["collection_paused", "deferred_interrupts"]


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Pause Python's cyclic garbage collector.

    A block that makes many objects and no garbage would run it many times, and each run would look at all of
    them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[list[int]]:
    """Defer KeyboardInterrupt: the block gets a list of the signals that arrive, and can raise it itself.

    In other threads than the main one, where Python raises none, nothing is done.
    """
    received: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:  # None: not set by Python
        yield received
        return
    signal.signal(signal.SIGINT, lambda number, frame: received.append(number))  # noqa: ARG005
    try:
        yield received
    finally:
        signal.signal(signal.SIGINT, before)
