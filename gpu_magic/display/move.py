"""What a move is going to do, or has done, as a table. The same lines for notebooks and terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.display.memory import unfinished_text
from gpu_magic.text import listed, size_text

if TYPE_CHECKING:
    from gpu_magic.moving.leftovers import Leftovers, OldMemory
    from gpu_magic.moving.planned_variable import PlannedVariable
    from gpu_magic.moving.variables import MoveReport

__all__ = ["move_lines"]


def move_lines(report: MoveReport) -> list[str]:
    """Return what has moved, or for a dry run would move, and what has not."""
    return [
        *_table(report),
        _outcome(report),
        *(f"{name} stays: {reason}" for name, reason in report.skipped),
        *report.unmoved,
        *_leftover_lines(report.leftovers, moves_all=report.moves_all),
    ]


def _outcome(report: MoveReport) -> str:
    size, device = size_text(report.nbytes), report.device_text
    if not any(variable.load.arrays for variable in report.variables):
        return f"All of it is on {device} already."
    if name := report.converted_in_place:
        if report.seconds is None:
            return f"NumPy's arrays would become {name}'s, in the memory that they have. Nothing was changed."
        return f"NumPy's arrays have become {name}'s, in the memory that they had: nothing was copied."
    if report.seconds is None:
        fits = report.free is None or report.nbytes <= report.free
        free = "an unknown amount is" if report.free is None else f"{size_text(report.free)} are"
        verb = "would move to" if fits else "do not fit on"
        return f"{size} {verb} {device}, where {free} free. Nothing was changed."
    duration = f" in {report.seconds:.1f} s" if report.seconds >= 0.1 else ""  # noqa: PLR2004
    return f"{size} moved to {device}{duration}."


def _leftover_lines(leftovers: Leftovers, *, moves_all: bool) -> list[str]:
    old, unfinished = leftovers.old_memory, leftovers.unfinished
    return [
        *([_old_memory_text(old, moves_all=moves_all)] if old else []),
        *(
            f"{name} has some of what has moved, and {size_text(nbytes)} elsewhere: move {name} as well."
            for name, nbytes in leftovers.split
        ),
        *([unfinished_text(unfinished)] if unfinished else []),
    ]


def _old_memory_text(old: OldMemory, *, moves_all: bool) -> str:
    names = ", ".join(old.names)
    copy = f"with the old copy ({size_text(old.nbytes)} on {listed(sorted(map(str, old.devices)))})"
    if moves_all:
        return f"Not moved: {names}, {copy}. Datasets and outputs stay where they are."
    return (
        f"Not named, and not tied to what has moved: {names}, {copy}. Names that belong together "
        "move together in one line."
    )


def _table(report: MoveReport) -> list[str]:
    rows = [_cells(variable, report.device) for variable in report.variables]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [
        f"{name:{widths[0]}}  {what:{widths[1]}}  {size:>{widths[2]}}  {way}".rstrip()
        for name, what, size, way in rows
    ]


def _cells(variable: PlannedVariable, device: str) -> tuple[str, str, str, str]:
    """Return a row of the table: the name, what it is, its size, and from where to where."""
    count = variable.load.arrays
    numpy = "" if device.startswith("cpu") else _numpy_text(variable.numpy_arrays)
    if count:
        what = f"{variable.type_text}: {count} array{'s' if count > 1 else ''}"
        way = f"{', '.join(variable.load.origins)} → {device}{numpy}"
        return variable.name, what, size_text(variable.load.nbytes), way
    if variable.has_arrays:
        way = f"on {device} already"
    else:
        way = f"shared with {variable.shared_with}" if variable.shared_with else "nothing to move"
    return variable.name, variable.type_text, "", way + numpy


def _numpy_text(count: int) -> str:
    if not count:
        return ""
    what = "a NumPy array stays" if count == 1 else f"{count} NumPy arrays stay"
    return f"; {what} (--numpy torch makes tensors of them)"
