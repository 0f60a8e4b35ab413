"""The machine as a table: as text for terminals, and as HTML for notebooks.

Both are made of the same rows and columns, so they say the same. Names that come from the machine (a process,
a user) are escaped in HTML, and have no control characters in text.
"""

from __future__ import annotations

import html
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.display.rows import UNKNOWN_TEXT, Row, rows
from gpu_magic.display.style import STYLE
from gpu_magic.text import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpu_magic.devices.unknown import Unknown
    from gpu_magic.process.view import Snapshot

__all__ = ["as_html", "as_text"]

_LONGEST_MASK = 400  # characters: eight UUIDs and more


def _figure(value: float | Unknown | None, unit: str) -> str:
    if value is None:
        return ""
    return UNKNOWN_TEXT if value is UNKNOWN else f"{value:.0f}{unit}"


class _Column(NamedTuple):
    """A column of the table.

    Parameters
    ----------
    heading
        Its first line.
    text
        Returns what a row has there; several lines are separated by newlines.
    is_right
        Whether it is aligned to the right.
    css
        The class of its cells in HTML; the style is below.
    has_bar
        Whether a cell with text has a bar of the memory in use beneath it, in HTML.

    """

    heading: str
    text: Callable[[Row], str]
    is_right: bool = False
    css: str = ""
    has_bar: bool = False


_COLUMNS = (
    _Column("GPU", lambda row: row.label, is_right=True),
    _Column("Name", lambda row: row.name),
    _Column("Memory", lambda row: row.memory, is_right=True, has_bar=True),
    _Column("Util", lambda row: _figure(row.utilization, "%"), is_right=True),
    _Column("Temp", lambda row: _figure(row.temperature, "°C"), is_right=True),
    _Column("Power", lambda row: _figure(row.power, " W"), is_right=True),
    _Column("In this kernel", lambda row: row.visible_as, css="gm-visible-as"),
    _Column("Used by", lambda row: "\n".join(row.users), css="gm-used-by"),
)


def as_text(snapshot: Snapshot) -> str:
    """Return the table as text, for a terminal."""
    lines = [_title(snapshot)]
    if found := list(rows(snapshot)):
        table = [tuple(column.heading for column in _COLUMNS)]
        for row in found:
            cells = [column.text(row).split("\n") for column in _COLUMNS]
            table.extend(zip_longest(*cells, fillvalue=""))
        widths = [max(map(len, texts)) for texts in zip(*table, strict=True)]
        lines.extend(_text_line(line, widths) for line in table)
    lines.extend(_footer_text(snapshot))
    return "\n".join(lines)


def _text_line(texts: tuple[str, ...], widths: list[int]) -> str:
    cells = (
        text.rjust(width) if column.is_right else text.ljust(width)
        for column, text, width in zip(_COLUMNS, texts, widths, strict=True)
    )
    return "  ".join(cells).rstrip()


def as_html(snapshot: Snapshot) -> str:
    """Return the table as HTML, for a notebook, in the colors of the front end."""
    head = "".join(f"<th{_css(column)}>{column.heading}</th>" for column in _COLUMNS)
    found = list(rows(snapshot))
    marks_visible = not all(row.is_visible for row in found)  # all of them is no choice to mark
    body = "".join(_html_row(row, marks_visible=marks_visible) for row in found)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if body else ""
    title = f"<p class='gm-title'>{html.escape(_title(snapshot))}</p>"
    facts = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
        for name, text in _facts(snapshot)
    )
    facts = f"<table class='gm-facts'><tbody>{facts}</tbody></table>" if facts else ""
    notes = "".join(f"<p class='gm-note'>{html.escape(note)}</p>" for note in _notes(snapshot))
    return f"<div class='gpu-magic'><style>{STYLE}</style>{title}{table}{facts}{notes}</div>"


def _html_row(row: Row, *, marks_visible: bool) -> str:
    visible = "gm-here" if row.is_visible else "gm-hidden"
    chosen = " gm-chosen" if row.is_visible and marks_visible else ""
    cells = "".join(_html_cell(row, column) for column in _COLUMNS)
    return f"<tr class='gm-{row.usage} {visible}{chosen}'>{cells}</tr>"


def _html_cell(row: Row, column: _Column) -> str:
    text = html.escape(column.text(row)).replace("\n", "<br>")
    if column.has_bar and text:
        text += f"<i class='gm-bar'><b style='width:{row.shares.used:.0%}'></b></i>"
    return f"<td{_css(column)}>{text}</td>"


def _css(column: _Column) -> str:
    names = f"{'gm-right' if column.is_right else ''} {column.css}".strip()
    return f" class='{names}'" if names else ""


def _title(snapshot: Snapshot) -> str:
    parts = []
    if snapshot.simulated:
        parts.append(f"SIMULATED machine ({snapshot.simulated}): these GPUs do not exist")
    if snapshot.driver_version is not UNKNOWN:
        parts.append(f"driver {snapshot.driver_version}")
    if snapshot.cuda_version is not UNKNOWN:
        parts.append(f"CUDA up to {snapshot.cuda_version}")
    return printable(" · ".join(parts)) or "GPUs"


def _facts(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Return what this kernel was started with, what is set now, and whether that can change."""
    view = snapshot.kernel
    now = _mask(view.mask)
    if view.order:
        now += f" (CUDA_DEVICE_ORDER={shortened(view.order, 40)})"
    return [("Started with", _mask(view.inherited)), ("Now", now), ("CUDA", view.cuda)]


def _mask(mask: str | None) -> str:
    if mask is None:
        return "CUDA_VISIBLE_DEVICES not set: all GPUs"
    return (
        f"CUDA_VISIBLE_DEVICES={shortened(mask, _LONGEST_MASK)}"
        if mask
        else "CUDA_VISIBLE_DEVICES empty: no GPU"
    )


def _notes(snapshot: Snapshot) -> list[str]:
    return [*filter(None, (snapshot.problem, snapshot.limitation)), *snapshot.kernel.notes]


def _footer_text(snapshot: Snapshot) -> Iterator[str]:
    facts, notes = _facts(snapshot), _notes(snapshot)
    if facts or notes:
        yield ""
    for name, text in facts:
        yield f"{name:<13} {text}"
    for note in notes:
        yield f"! {printable(note)}"
