"""What the ranks of a command write, as one text: each line behind the rank's number."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RankLines"]


class RankLines:
    """Writes what comes in pieces from several ranks, by lines.

    A progress bar returns to the beginning of its line again and again: of that, the last state is written.

    Parameters
    ----------
    write
        Writes a text.
    has_ranks
        Whether there are several; what comes from one is written as it comes.

    """

    def __init__(self, write: Callable[[str], object], *, has_ranks: bool) -> None:
        self._write, self._has_ranks = write, has_ranks
        self._begun: dict[str, str] = {}  # lines without an end, by rank

    def add(self, label: str, text: str) -> None:
        """Write what a rank has written; `label` is its number, or empty for the launcher."""
        if not self._has_ranks:
            self._write(text)
            return
        *lines, rest = (self._begun.pop(label, "") + text).split("\n")
        self._write("".join(f"{_line(label, line)}\n" for line in lines))
        if rest:
            self._begun[label] = rest

    def end(self) -> None:
        """Write what is left."""
        for label, line in self._begun.items():
            self._write(f"{_line(label, line)}\n")
        self._begun.clear()


def _line(label: str, line: str) -> str:
    shown = line.rstrip("\r").rpartition("\r")[2]
    return f"[{label}] {shown}" if label else shown
