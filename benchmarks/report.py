"""A table as plain text and as Markdown: contender, median, ratio, bound, and whether it holds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Row", "Table", "calls", "escape", "kilobytes", "time"]


def time(seconds: float) -> str:
    for unit, size in (("s ", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def calls(number: float) -> str:
    return f"{number:.0f}"


def kilobytes(size: float) -> str:
    return f"{size / 1000:.1f} kB"


@dataclass(frozen=True, slots=True)
class Row:
    """One contender.

    Parameters
    ----------
    name
        What is measured.
    value
        The figure.
    bound
        In words, what it is held to.
    holds
        Whether it does; None where there is no bound.

    """

    name: str
    value: float
    bound: str = ""
    holds: bool | None = None

    @property
    def verdict(self) -> str:
        return {None: "", True: "✓", False: "✗"}[self.holds]


@dataclass(frozen=True, slots=True)
class Table:
    """What one question gave.

    Parameters
    ----------
    title
        The question.
    rows
        In the order in which they are shown.
    baseline
        The row that the others are divided by; empty for no ratios.
    write
        How a value is written.
    notes
        Lines beneath the table.

    """

    title: str
    rows: Sequence[Row]
    baseline: str = ""
    write: Callable[[float], str] = time
    notes: Sequence[str] = ()

    @property
    def checks(self) -> list[Row]:
        """Return the rows that are held to something."""
        return [row for row in self.rows if row.holds is not None]

    def __str__(self) -> str:
        cells = list(self._cells())
        widths = [max(len(line[column]) for line in cells) for column in range(5)]
        lines = [self.title, "-" * len(self.title)]
        for name, value, ratio, bound, mark in cells:
            line = f"{name:<{widths[0]}}  {value:>{widths[1]}}"
            line += f"  {ratio:>{widths[2]}}" if self.baseline else ""
            line += f"  {bound:<{widths[3]}}  {mark}" if self.checks else ""
            lines.append(line.rstrip())
        return "\n".join([*lines, *self.notes])

    def markdown(self) -> str:
        """Return the table as Markdown, below a heading of the third level."""
        columns = [0, 1, *([2] if self.baseline else []), *([3, 4] if self.checks else [])]
        lines = [[escape(cells[column].strip()) for column in columns] for cells in self._cells()]
        rule = ["---:" if column in (1, 2) else "---" for column in columns]
        table = [f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:])]
        beneath = [f"- {escape(note)}" for note in self.notes]
        return "\n".join([f"### {escape(self.title)}", "", *table, *(["", *beneath] if beneath else [])])

    def _cells(self) -> Iterator[tuple[str, str, str, str, str]]:
        yield "", "median" if self.write is time else "", "ratio", "bound", ""
        base = next((row.value for row in self.rows if row.name == self.baseline), 0.0)
        for row in self.rows:
            ratio = f"{row.value / base:.2f}" if base else ""
            yield row.name, self.write(row.value), ratio, row.bound, row.verdict


def escape(text: str) -> str:
    """Return a text in which Markdown finds no table, no emphasis and no HTML."""
    text = re.sub(r"[\\|*<`#]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)
    return " ".join(text.split())
