"""Keeps away what must not come in the midst of a move."""

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
    """Keep Python from looking for garbage: it would go through all that is made here, and find nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[list[int]]:
    """Let interrupts wait, and collect them: neither a commit nor its undoing must be left half-way."""
    came: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:  # not ours to change
        yield came
        return
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))  # noqa: ARG005
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)
