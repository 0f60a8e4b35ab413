"""The line that shows whom a choice waits for, updated in place."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from IPython.display import DisplayHandle

from gpu_magic.errors import show_as
from gpu_magic.process.show import bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["waiting_line"]


@contextmanager
def waiting_line() -> Iterator[Callable[[object], None]]:
    """Run a block with a function that shows a line, and replaces it in later calls.

    An interrupt is shown as a line with its own message.
    """
    handle: DisplayHandle | None = None

    def show(line: object) -> None:
        nonlocal handle
        data = bundle(str(line))
        if handle is None:
            handle = DisplayHandle()  # before it is shown, so that an interrupt finds it
            handle.display(data, raw=True)
        else:
            handle.update(data, raw=True)

    end = "Waiting has ended."
    try:
        yield show
        end = "The GPUs are free now."
    except KeyboardInterrupt as interrupt:
        end = str(interrupt) or "Waiting was stopped."
        if handle is not None:
            show_as(interrupt, "KeyboardInterrupt")
        raise
    finally:
        if handle is not None:
            show(end)
