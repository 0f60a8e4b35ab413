"""The machine as a table: one layout, as text for terminals and as HTML for notebooks.

Both come from the same rows, so they say the same. Names that come from the machine (a process, a user)
are text and nothing else: escaped in HTML, without control characters in text.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.display.rows import UNKNOWN_TEXT, Row, rows
from gpu_magic.text import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.devices.unknown import Unknown
    from gpu_magic.process.view import Snapshot

__all__ = ["as_html", "as_text"]

_LONGEST_MASK = 400  # eight UUIDs and more
_HEADINGS = ("GPU", "Name", "Memory", "Util", "Temp", "Power", "In this kernel", "Used by")
_RIGHT = (True, False, True, True, True, True, False, False)


def as_text(snapshot: Snapshot) -> str:
    """Lay the machine out for a terminal."""
    lines = [_title(snapshot)]
    if found := list(rows(snapshot)):
        table = [_HEADINGS, *(line for row in found for line in _text_lines(row))]
        widths = [max(len(line[column]) for line in table) for column in range(len(_HEADINGS))]
        for line in table:
            cells = (
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(line, widths, _RIGHT, strict=True)
            )
            lines.append("  ".join(cells).rstrip())
    lines.extend(_footer_text(snapshot))
    return "\n".join(lines)


def as_html(snapshot: Snapshot) -> str:
    """Lay the machine out for a notebook, in the front end's own colours."""
    head = "".join(f"<th{_side(right)}>{name}</th>" for name, right in zip(_HEADINGS, _RIGHT, strict=True))
    found = list(rows(snapshot))
    chosen = " gm-chosen" if not all(row.is_here for row in found) else ""  # all of them is no choice to mark
    body = "".join(_html_row(row, chosen) for row in found)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if body else ""
    title = f"<p class='gm-title'>{html.escape(_title(snapshot))}</p>"
    facts = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
        for name, text in _facts(snapshot)
    )
    facts = f"<table class='gm-facts'><tbody>{facts}</tbody></table>" if facts else ""
    notes = "".join(f"<p class='gm-note'>{html.escape(note)}</p>" for note in _notes(snapshot))
    return f"<div class='gpu-magic'><style>{_STYLE}</style>{title}{table}{facts}{notes}</div>"


def _title(snapshot: Snapshot) -> str:
    parts = []
    if snapshot.simulated:
        parts.append(f"SIMULATED machine ({snapshot.simulated}): these GPUs do not exist")
    if snapshot.driver_version is not UNKNOWN:
        parts.append(f"driver {snapshot.driver_version}")
    if snapshot.cuda_version is not UNKNOWN:
        parts.append(f"CUDA up to {snapshot.cuda_version}")
    return printable(" · ".join(parts)) or "GPUs"


def _cells(row: Row) -> tuple[str, ...]:
    """Return all columns but the last, as text."""
    return (
        row.label,
        row.name,
        row.memory,
        _figure(row.utilization, "%"),
        _figure(row.temperature, "°C"),
        _figure(row.power, " W"),
        row.here,
    )


def _figure(value: float | Unknown | None, unit: str) -> str:
    if value is None:
        return ""
    return UNKNOWN_TEXT if value is UNKNOWN else f"{value:.0f}{unit}"


def _facts(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Return what this kernel was given, has set, and can still change."""
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
    problem = (snapshot.problem,) if snapshot.problem else ()
    return [*problem, *snapshot.kernel.notes]


def _text_lines(row: Row) -> Iterator[tuple[str, ...]]:
    first, *others = row.users
    yield (*_cells(row), first)
    for line in others:
        yield (*([""] * (len(_HEADINGS) - 1)), line)


def _footer_text(snapshot: Snapshot) -> Iterator[str]:
    facts, notes = _facts(snapshot), _notes(snapshot)
    if facts or notes:
        yield ""
    for name, text in facts:
        yield f"{name:<13} {text}"
    for note in notes:
        yield f"! {printable(note)}"


def _html_row(row: Row, chosen: str) -> str:
    cells = []
    for number, (cell, right) in enumerate(zip(_cells(row), _RIGHT, strict=False)):
        text = html.escape(cell)
        if number == 2 and cell:  # noqa: PLR2004 - the memory column carries the bar
            text = f"{text}<i class='gm-bar'><b style='width:{row.shares[-1]:.0%}'></b></i>"
        cells.append(f"<td{_side(right)}>{text}</td>")
    users = "<br>".join(html.escape(line) for line in row.users)
    here = f" gm-here{chosen}" if row.is_here else " gm-hidden"
    return f"<tr class='gm-{row.kind}{here}'>{''.join(cells)}<td>{users}</td></tr>"


def _side(right: bool) -> str:
    return " class='gm-right'" if right else ""


# Colours are the front end's where it names them (JupyterLab and Notebook do), else ones that read on light
# and dark alike; everything else inherits. "&" stands for the class three times over, which outweighs
# what front ends say about every table.
_STYLE = """
&{--gm-line:var(--jp-border-color2,#8884);--gm-soft:var(--jp-ui-font-color2,#888);
--gm-blue:var(--jp-brand-color1,#4b8df8);--gm-green:var(--jp-success-color1,#3fa45b);
--gm-amber:var(--jp-warn-color0,#c77f1a);font-size:13px;line-height:1.4;overflow-x:auto}
& table{border-collapse:collapse;margin:4px 0;border:0;font-variant-numeric:tabular-nums}
& tbody tr,& tbody tr:nth-child(even),& tbody tr:hover{background:none}
& th,& td{text-align:left;padding:4px 8px;border:0;white-space:nowrap;vertical-align:top;max-width:none}
& thead th,& .gm-facts th{color:var(--gm-soft);font-weight:600}
& tbody tr{border:0;border-top:1px solid var(--gm-line)}
& .gm-right{text-align:right}
& .gm-bar{display:block;height:3px;margin-top:2px;background:var(--gm-line);border-radius:2px}
& .gm-bar b{display:block;height:3px;background:var(--gm-soft);border-radius:2px}
& .gm-busy .gm-bar b{background:var(--gm-amber)}
& .gm-mine .gm-bar b{background:var(--gm-blue)}
& .gm-free td:last-child{color:var(--gm-green)}
& .gm-busy td:last-child,& .gm-note{color:var(--gm-amber)}
& .gm-mine td:last-child{color:var(--gm-blue)}
& .gm-problem td{color:var(--gm-soft)}
& .gm-here td:nth-child(7){color:var(--gm-blue);font-weight:700}
& .gm-hidden td:nth-child(7){color:var(--gm-soft)}
& .gm-chosen td:first-child{box-shadow:inset 3px 0 var(--gm-blue)}
& .gm-problem td:last-child,& .gm-facts td{white-space:normal}
& .gm-facts tr{border:0}& .gm-facts th,& .gm-facts td{padding:1px 8px}
& p{margin:2px 8px}& .gm-title{color:var(--gm-soft)}
""".replace("\n", "").replace("&", ".gpu-magic.gpu-magic.gpu-magic")
