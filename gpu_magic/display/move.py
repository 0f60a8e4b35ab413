"""What a move is going to do, or has done, as a table; the same lines for notebooks and terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.placement.holdings import holdings_of
from gpu_magic.placement.physical import described
from gpu_magic.text import listed, size_text

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable

    from gpu_magic.frameworks.base import Holding
    from gpu_magic.moving.move import Move, Row

__all__ = ["left_behind", "moved", "planned", "still_held"]


def planned(move: Move) -> list[str]:
    """Say what would move, and whether it fits."""
    there = described([move.place])[0]
    if not any(row.load.arrays for row in move.rows):
        return [*_table(move), f"All of it is on {there} already."]
    free = move.free
    room = "an unknown amount is" if free is None else f"{size_text(free)} are"
    verb = "would move to" if free is None or move.nbytes <= free else "do not fit on"
    plan = f"{size_text(move.nbytes)} {verb} {there}, where {room} free. Nothing was changed."
    return [*_table(move), plan]


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
    names: list[str] = []
    found: dict[Hashable, Holding] = {}
    for name, value in others:
        held = {key: one for key, one in holdings_of([value]).items() if key in old}
        names += [name] * bool(held)
        found |= held
    if not names:
        return ""
    where = listed(sorted({str(one.device) for one in found.values()}))
    size = size_text(sum(one.nbytes for one in found.values()))
    return (
        f"Not named, and not tied to what has moved: {', '.join(names)}, with the old copy ({size} on "
        f"{where}). Names that belong together move together in one line."
    )


def left_behind(parts: Iterable[tuple[str, int]]) -> list[str]:
    """Say which variables are in two places now."""
    return [
        f"{name} has some of what has moved, and {size_text(size)} elsewhere: move {name} as well."
        for name, size in parts
    ]


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
    left = "" if there.startswith("cpu") else _left(row.left)
    if not count:
        shared = f"shared with {row.shared}" if row.shared else "nothing to move"
        return row.name, what, "", (f"on {there} already" if row.holds else shared) + left
    return row.name, what, size_text(row.load.nbytes), f"{', '.join(row.load.origins)} → {there}{left}"


def _left(count: int) -> str:
    if not count:
        return ""
    what = "a NumPy array stays" if count == 1 else f"{count} NumPy arrays stay"
    return f"; {what} (--numpy torch makes tensors of them)"
