"""Sends the output of a thread to the cell that started the thread, while other cells run.

ipykernel 7 keeps the cell that output belongs to in a context variable. A thread that runs in a copy of the
cell's context has this variable. Before ipykernel 7, displayed output goes to the cell that is running, and
in older versions also printed output. There, senders get such a variable while such a thread runs.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["context_of_cell", "output_by_context"]

# The senders without a variable of their own, and the header of the message that requested the cell.
_cell: ContextVar[tuple[list[Any], dict[str, Any]]] = ContextVar("gpu_magic_cell")
_lock = threading.Lock()  # guards the next two names
_threads: set[int] = set()
_changed: list[tuple[Any, type]] = []  # senders, with their own types


def context_of_cell(shell: Any) -> Context:
    """Return a copy of the context, for a thread whose output belongs to the cell that runs now."""
    context = copy_context()
    if hasattr(shell, "kernel"):
        senders = [
            sender
            for sender in (shell.display_pub, sys.stdout, sys.stderr)
            if hasattr(sender, "parent_header") and not hasattr(sender, "_parent_header")
        ]
        context.run(_cell.set, (senders, shell.display_pub.parent_header))
    return context


@contextmanager
def output_by_context() -> Iterator[None]:
    """Send the output of this thread to the cell of its context."""
    with _lock:
        _threads.add(threading.get_ident())
        for sender in _cell.get(([], {}))[0]:
            if all(sender is not one for one, _ in _changed):
                _changed.append((sender, type(sender)))
                sender.__class__ = _by_context(type(sender))
    try:
        yield
    finally:
        with _lock:
            _threads.discard(threading.get_ident())
            while _changed and not _threads:
                sender, kind = _changed.pop()
                sender.__class__ = kind


def _by_context(kind: Any) -> Any:
    """Return a subclass of a sender's type. A stream writes at once: later, another thread would send."""

    class SenderByContext(kind):  # type: ignore[misc] # the type is known only at run time
        def __getattribute__(self, name: str) -> Any:
            _, header = _cell.get((None, None))
            if header is not None and name == "parent_header":
                return header
            if header is not None and name == "write":
                return partial(_write, self, header)
            return super().__getattribute__(name)

    return SenderByContext


def _write(stream: Any, header: dict[str, Any], text: str) -> int:
    content = {"name": stream.name, "text": text}
    stream.session.send(stream.pub_thread, "stream", content, parent=header, ident=stream.topic)
    return len(text)
