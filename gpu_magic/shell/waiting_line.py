"""The line that says for whom a choice waits, brought up to date in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from IPython.display import display

from gpu_magic.errors import show_as

if TYPE_CHECKING:
    from types import TracebackType

    from IPython.core.display_functions import DisplayHandle

__all__ = ["WaitingLine"]


class _Line:
    """A line of text, as a notebook and a terminal show it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


class WaitingLine:
    """Shows a line, and others in its place. An interrupt is shown as a line that says what it means.

    Parameters
    ----------
    undone
        What is not done where the wait is interrupted: `changed`.

    """

    def __init__(self, undone: str) -> None:
        self._undone = undone
        self._handle: DisplayHandle | None = None

    def __enter__(self) -> Self:
        return self

    def show(self, text: str) -> None:
        """Show a line, in place of the one before."""
        if self._handle is None:
            self._handle = display(_Line(text), display_id=True)
        else:
            self._handle.update(_Line(text))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        if self._handle is None:
            return
        if isinstance(error, KeyboardInterrupt):
            self._handle.update(_Line(f"The waiting was ended; nothing was {self._undone}."))
            show_as(error, "KeyboardInterrupt")
        else:
            self._handle.update(_Line("They are free now." if error is None else "The waiting has ended."))
