"""The machine as a table: as text for terminals, and as HTML for notebooks.

Both are made of the same rows and columns, so they say the same. Names that come from the machine (a process,
a user) are escaped in HTML, and have no control characters in text.
"""

from __future__ import annotations

import html
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.devices.nvml_calls import NO_LIBRARY
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.display.rows import UNKNOWN_TEXT, Row, rows
from gpu_magic.process.guard import runtime_of
from gpu_magic.text import html_block, printable, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.devices.unknown import Unknown
    from gpu_magic.process.view import Snapshot

__all__ = [
    "COLUMNS",
    "Column",
    "as_html",
    "as_text",
    "problem_text",
    "title",
]

_ALL = ": all GPUs"
_SIMULATED = "GPU_MAGIC_SIMULATE=8xA100-80GB"
_LONGEST_MASK = 400  # characters: eight UUIDs and more


def _figure(value: float | Unknown | None, unit: str) -> str:
    if value is None:
        return ""
    return UNKNOWN_TEXT if value is UNKNOWN else f"{value:.0f}{unit}"


class Column(NamedTuple):
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


COLUMNS = (
    Column("GPU", lambda row: row.label, is_right=True),
    Column("Name", lambda row: row.name),
    Column("Memory", lambda row: row.memory, is_right=True, has_bar=True),
    Column("Util", lambda row: _figure(row.utilization, "%"), is_right=True),
    Column("Temp", lambda row: _figure(row.temperature, "°C"), is_right=True),
    Column("Power", lambda row: _figure(row.power, " W"), is_right=True),
    Column("In this kernel", lambda row: row.visible_as, css="gm-visible-as"),
    Column("Used by", lambda row: "\n".join(row.users), css="gm-used-by"),
)


def as_text(snapshot: Snapshot) -> str:
    """Return the table as text, for a terminal."""
    table = _text_table(rows(snapshot), _columns(snapshot))
    return "\n".join([title(snapshot), *table, *_footer_text(snapshot)])


def _columns(snapshot: Snapshot) -> Sequence[Column]:
    """Return the columns as this process names itself: in a shell and in a script there is no kernel."""
    if snapshot.kernel.program != "python":
        return COLUMNS
    return [column._replace(heading=column.heading.replace("kernel", "process")) for column in COLUMNS]


def _text_table(rows: Iterable[Row], columns: Sequence[Column] = COLUMNS) -> list[str]:
    """Return the lines of a table; none if it has no rows."""
    lines = list(_text_cells(rows, columns))
    if not lines:
        return []
    first = tuple(column.heading for column in columns)
    widths = [max(map(len, texts)) for texts in zip(first, *lines, strict=True)]
    return [_text_line(line, widths, columns) for line in (first, *lines)]


def _text_cells(rows: Iterable[Row], columns: Sequence[Column]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each line: a row has several where one of its cells has."""
    for row in rows:
        yield from zip_longest(*(column.text(row).split("\n") for column in columns), fillvalue="")


def _text_line(texts: tuple[str, ...], widths: list[int], columns: Sequence[Column]) -> str:
    cells = (
        text.rjust(width) if column.is_right else text.ljust(width)
        for column, text, width in zip(columns, texts, widths, strict=True)
    )
    return "  ".join(cells).rstrip()


def as_html(snapshot: Snapshot) -> str:
    """Return the table as HTML, for a notebook, in the colors of the front end."""
    facts = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
        for name, text in _facts(snapshot)
    )
    facts = f"<table class='gm-facts'><tbody>{facts}</tbody></table>" if facts else ""
    table = _html_table(rows(snapshot), _columns(snapshot))
    return html_block(title(snapshot), table + facts, _notes(snapshot))


def _html_table(rows: Iterable[Row], columns: Sequence[Column] = COLUMNS) -> str:
    """Return a table as HTML, as `_text_table` does as text; empty if it has no rows."""
    found = list(rows)
    if not found:
        return ""
    head = "".join(f"<th{_css(column)}>{column.heading}</th>" for column in columns)
    marks_visible = not all(row.is_visible for row in found)  # all is no choice to mark
    body = "".join(_html_row(row, columns, marks_visible=marks_visible) for row in found)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _html_row(row: Row, columns: Sequence[Column], *, marks_visible: bool) -> str:
    visible = "gm-here" if row.is_visible else "gm-hidden"
    chosen = " gm-chosen" if row.is_visible and marks_visible else ""
    cells = "".join(_html_cell(row, column) for column in columns)
    return f"<tr class='gm-{row.usage} {visible}{chosen}'>{cells}</tr>"


def _html_cell(row: Row, column: Column) -> str:
    text = html.escape(column.text(row)).replace("\n", "<br>")
    if column.has_bar and text:
        text += f"<i class='gm-bar'><b style='width:{row.shares.used:.0%}'></b></i>"
    return f"<td{_css(column)}>{text}</td>"


def _css(column: Column) -> str:
    names = f"{'gm-right' if column.is_right else ''} {column.css}".strip()
    return f" class='{names}'" if names else ""


def title(snapshot: Inventory) -> str:
    """Return the versions of the driver and of CUDA, and whether the machine exists."""
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
    started, vendors = _mask(view.inherited), snapshot.vendors
    if vendors == ("amd",):
        started, now = _hip(view.inherited_amd), _hip(view.amd)
    elif "amd" in vendors:
        started, now = f"{started}; AMD: {_hip(view.inherited_amd)}", f"{now}; AMD: {_hip(view.amd)}"
    if view.allotted:
        started = f"{started.removesuffix(_ALL)}; {view.allotted}"
    return [("Started with", started), ("Now", now), (runtime_of(view.vendor), view.cuda)]


def _hip(hiding: Iterable[tuple[str, str]]) -> str:
    if not hiding:
        return f"HIP_VISIBLE_DEVICES not set{_ALL}"
    values = (f"{name}={shortened(value, _LONGEST_MASK) or '(empty)'}" for name, value in hiding)
    return ", ".join(values)


def _mask(mask: str | None) -> str:
    if mask is None:
        return f"CUDA_VISIBLE_DEVICES not set{_ALL}"
    return (
        f"CUDA_VISIBLE_DEVICES={shortened(mask, _LONGEST_MASK)}"
        if mask
        else "CUDA_VISIBLE_DEVICES empty: no GPU"
    )


def problem_text(snapshot: Snapshot) -> str:
    """Return why no GPU can be read, and without a driver how gpu_magic can be tried; empty where one can."""
    if NO_LIBRARY not in snapshot.problem:
        return snapshot.problem
    is_shell = snapshot.kernel.program == "python"
    typed = f"{_SIMULATED} gpu-magic" if is_shell else f"%env {_SIMULATED}, then %gpus"
    return f"{snapshot.problem} To try gpu_magic without a GPU: {typed}."


def _notes(snapshot: Snapshot) -> list[str]:
    problems = filter(None, (problem_text(snapshot), snapshot.limitation))
    return [*problems, *snapshot.kernel.notes]


def _footer_text(snapshot: Snapshot) -> Iterator[str]:
    facts, notes = _facts(snapshot), _notes(snapshot)
    if facts or notes:
        yield ""
    for name, text in facts:
        yield f"{name:<13} {text}"
    for note in notes:
        yield f"! {printable(note)}"
