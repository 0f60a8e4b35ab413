"""A line in a notebook that says what a command does while it runs, and then what became of it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from IPython.display import display

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.launching.task import Task

__all__ = ["live_line"]

_AGAIN = 1.0  # seconds


@contextmanager
def live_line(task: Task) -> Iterator[None]:
    """Show a task's line within a `with` block, and bring it up to date each second."""
    handle = display(_text(task), raw=True, display_id=True)
    is_over = threading.Event()

    def refresh() -> None:
        while not is_over.wait(_AGAIN):
            handle.update(_text(task), raw=True)

    thread = threading.Thread(target=refresh, name="gpu_magic line", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        handle.update(_text(task), raw=True)


def _text(task: Task) -> dict[str, str]:
    return {"text/plain": str(task)}
