"""What a move is going to do, or has done, as a table; the same lines for notebooks and terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.placement.devices import holdings_of, size_text
from gpu_magic.placement.physical import described
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable

    from gpu_magic.moving.move import Move, Row

__all__ = ["moved", "planned", "still_held"]


def planned(move: Move) -> list[str]:
    """Say what would move, and whether it fits."""
    there = described([move.place])[0]
    free = move.free
    room = "how much is free there is not known" if free is None else f"where {size_text(free)} are free"
    return [*_table(move), f"{size_text(move.nbytes)} would move to {there}, {room}. Nothing was changed."]


def moved(move: Move) -> list[str]:
    """Say what has moved."""
    there = described([move.place])[0]
    if not any(row.load.arrays for row in move.rows):
        return [*_table(move), f"All of it is on {there} already."]
    took = f" in {move.seconds:.1f} s" if move.seconds >= 0.1 else ""  # noqa: PLR2004
    return [*_table(move), f"{size_text(move.nbytes)} moved to {there}{took}."]


def still_held(old: Collection[Hashable], others: Iterable[tuple[str, object]]) -> str:
    """Name the variables that still hold memory that was moved, so that it is not freed; empty for none.

    Parameters
    ----------
    old
        The keys of that memory.
    others
        Names and values to look through.

    """
    found: list[str] = []
    for name, value in others:
        held = [holding for key, holding in holdings_of([value]).items() if key in old]
        if held:
            where = listed(sorted({str(one.device) for one in held}))
            found.append(f"{name} ({size_text(sum(one.nbytes for one in held))} on {where})")
    return f"The old copy is not freed, as other names still hold it: {', '.join(found)}." if found else ""


def _table(move: Move) -> list[str]:
    lines = [_cells(row, str(move.place)) for row in move.rows]
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    return [
        f"{name:{widths[0]}}  {what:{widths[1]}}  {size:>{widths[2]}}  {way}".rstrip()
        for name, what, size, way in lines
    ]


def _cells(row: Row, there: str) -> tuple[str, str, str, str]:
    count = row.load.arrays
    what = f"{row.kind}: {count} array{'s' if count > 1 else ''}" if count else row.kind
    left = f"; {row.left} NumPy array{'s' if row.left > 1 else ''} stay: --numpy torch" if row.left else ""
    if not count:
        shared = "with what is above" if row.is_shared else "nothing to move"
        return row.name, what, "", (f"on {there} already" if row.holds else shared) + left
    return row.name, what, size_text(row.load.nbytes), f"{', '.join(row.load.origins)} → {there}{left}"
