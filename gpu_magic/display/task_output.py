"""What the ranks of a command write, as one text: each line behind the rank's number."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

    from gpu_magic.launching.output import Output

__all__ = ["RankLines", "last_state"]


_LONGEST = 4096  # characters of a line that has not ended


class RankLines:
    """Writes what comes in pieces from several ranks, by lines.

    A progress bar returns to the beginning of its line again and again: of that, its state is written now and
    then, and the last one.

    Parameters
    ----------
    stream
        Where to. It is flushed.
    has_ranks
        Whether there are several; what comes from one is written as it comes.
    seconds
        The time between two states of a progress bar.

    """

    def __init__(self, stream: TextIO, *, has_ranks: bool, seconds: float = 5.0) -> None:
        self._stream, self._has_ranks, self._seconds = stream, has_ranks, seconds
        self._begun: dict[str, str] = {}  # lines without an end, by rank
        self._is_within_line = False
        self._due = time.monotonic() + seconds

    def show(self, pieces: Iterable[tuple[Output, str]]) -> None:
        """Write what several ranks have written; called many times a second."""
        for output, text in pieces:
            self.add(output.label, text)
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + self._seconds
            for label in [label for label, line in self._begun.items() if "\r" in line]:
                self._write(f"{_line(label, self._begun.pop(label))}\n")

    def add(self, label: str, text: str) -> None:
        """Write what a rank has written; `label` is its number, or empty for the launcher."""
        if not text:
            return
        if not self._has_ranks:
            self._write(text)
            self._is_within_line = not text.endswith("\n")
            return
        *lines, rest = text.split("\n")
        if lines:
            lines[0] = self._begun.pop(label, "") + lines[0]
            self._write("".join(f"{_line(label, line)}\n" for line in lines))
        self._begun[label] = self._begun.get(label, "") + rest
        if len(self._begun[label]) > _LONGEST:
            self._write(f"{_line(label, self._begun.pop(label))}\n")

    def end(self) -> None:
        """Write what is left."""
        for label, line in self._begun.items():
            if line:
                self._write(f"{_line(label, line)}\n")
        self._begun.clear()
        if self._is_within_line:
            self._write("\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def last_state(line: str) -> str:
    """Return what is seen of a line in which a progress bar has returned to the beginning."""
    return line.rstrip("\r").rpartition("\r")[2]


def _line(label: str, line: str) -> str:
    return f"[{label}] {last_state(line)}" if label else last_state(line)
