"""A context manager around steps that must not be interrupted half-way."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["deferred_interrupts"]


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[list[int]]:
    """Defer KeyboardInterrupt: what arrives is put into the list that the block gets, to be raised after it.

    Nothing is done in other threads than the main one, where Python raises none, and where interrupts are
    ignored.
    """
    received: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or before in (None, signal.SIG_IGN):  # None: the handler is not Python's
        yield received
        return
    signal.signal(signal.SIGINT, lambda number, frame: received.append(number))  # noqa: ARG005
    try:
        yield received
    finally:
        signal.signal(signal.SIGINT, before)
