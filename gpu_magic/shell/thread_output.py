"""Sends the output of a thread to the cell that started the thread, while other cells run.

ipykernel 7 keeps the cell that output belongs to in a context variable. A thread that runs in a copy of the
cell's context has this variable. Before ipykernel 7, displayed output goes to the cell that is running, and
in older versions also printed output. For these versions, this module gives the senders such a variable.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["output_of_cell", "restore_senders"]

# The header of the message that requested the cell, in the threads that the cell started.
_header: ContextVar[dict[str, Any]] = ContextVar("gpu_magic_parent_header")
# The senders that have such a variable, and their own types.
_changed: list[tuple[Any, type]] = []


def output_of_cell(shell: Any) -> Callable[[Callable[[], None]], None]:
    """Return a function that calls another in a thread, whose output then goes to the cell that runs now."""
    context = copy_context()
    if hasattr(shell, "kernel"):
        for sender in (shell.display_pub, shell.displayhook, sys.stdout, sys.stderr):
            if hasattr(sender, "parent_header") and not hasattr(sender, "_parent_header"):
                _give_variable(sender)
        context.run(_header.set, shell.displayhook.parent_header)
    return context.run


def restore_senders() -> None:
    """Give the senders their own types again. The output of a thread then goes to the cell that runs."""
    while _changed:
        sender, kind = _changed.pop()
        ours = vars(sender)
        latest, write = ours.pop("_latest_header"), ours.pop("_write_of_cells", None)
        sender.__class__ = kind
        sender.parent_header = latest
        if write is not None and write != kind.write.__get__(sender):  # type: ignore[attr-defined] # a stream
            sender.write = write


def _give_variable(sender: Any) -> None:
    """Make a sender look up the cell in `_header` first."""
    kind = type(sender)
    if hasattr(kind, "_sends_by_context"):
        return
    _changed.append((sender, kind))
    latest, write = sender.parent_header, getattr(sender, "write", None)
    is_stream = hasattr(sender, "pub_thread")
    sender.__class__ = _stream_type(kind) if is_stream else _sender_type(kind)
    sender.parent_header = latest
    if is_stream:
        sender.write = write


def _sender_type(kind: Any) -> Any:
    """Return a subclass of an ipykernel sender that uses the header of the context, or else the latest."""

    class SenderByContext(kind):  # type: ignore[misc] # the type is known only at run time
        _sends_by_context = True

        @property
        def parent_header(self) -> Any:
            return _header.get(self._latest_header)

        @parent_header.setter
        def parent_header(self, header: Any) -> None:
            self._latest_header = header

    return SenderByContext


def _stream_type(kind: Any) -> Any:
    """Return such a subclass of a stream type. Streams send text later, on their own thread.

    `write` is a property, because IPython 9 assigns to it at the start and at the end of each cell.
    """

    class StreamByContext(_sender_type(kind)):  # type: ignore[misc]
        @property
        def write(self) -> Callable[[str], Any]:
            return self._write_of_cells if _header.get(None) is None else self._send

        @write.setter
        def write(self, function: Callable[[str], Any]) -> None:
            self._write_of_cells = function

        def _send(self, string: str) -> int:
            content = {"name": self.name, "text": string}
            self.session.send(self.pub_thread, "stream", content, parent=self.parent_header, ident=self.topic)
            return len(string)

    return StreamByContext
