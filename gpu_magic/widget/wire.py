"""What goes to the page, each second: the machine as JSON's types, and what has changed of it."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.model import UNKNOWN, Gpu, Inventory
from gpu_magic.devices.rows import Row, rows
from gpu_magic.text import printable

if TYPE_CHECKING:
    from gpu_magic.selection.allotment import Allotment

__all__ = ["Rows", "changes", "picture"]

# For each device, by what the page knows it by: the fields of its row.
Rows = dict[str, dict[str, Any]]

_THOUSANDTHS = 1000


def picture(inventory: Inventory, allotment: Allotment) -> tuple[dict[str, Any], Rows]:
    """Return what stands around the rows, and the rows.

    Returns
    -------
    head : dict
        `host`, `driver`, `simulated` (a profile), `problem`; `state` and `cuda` of the guard, its `notes`;
        `chosen`: whether some GPUs are known to be hidden; `least`: what `auto` picks from, the least
        busy first.
    rows : dict
        By what names each behind `%gpus`, a number or an instance's UUID: `label`, `name`, `memory`, `users`,
        `kind`, `here` as in `Row`; `bar`: thousandths of the memory that are mine, others', and in use in
        all; `util`, `temp`, `watts`: None where unknown, "" where there is nothing to say; `why`: why it
        can't be chosen; `part`: the GPU that an instance is a part of.

    """
    found = list(rows(inventory))
    view = inventory.kernel
    driver = "" if inventory.driver_version is UNKNOWN else printable(f"driver {inventory.driver_version}")
    head = {
        "host": printable(socket.gethostname()),
        "driver": driver,
        "simulated": printable(inventory.simulated),
        "problem": inventory.problem,
        "state": view.state if view else "",
        "cuda": view.cuda if view else "",
        "notes": list(view.notes) if view else [],
        "chosen": bool(view and view.names is not UNKNOWN) and not all(row.is_here for row in found),
        "least": [_typed(device) for device in allotment.least_busy],
    }
    return head, {_typed(row.device): _line(row, allotment) for row in found}


def changes(before: Rows, now: Rows) -> Rows | None:
    """Return the fields that differ; None where the rows are not the same ones in the same order."""
    if list(before) != list(now):
        return None
    found = {}
    for key, line in now.items():
        was = before[key]
        if line != was:
            found[key] = {name: value for name, value in line.items() if value != was[name]}
    return found


def _typed(device: Any) -> str:
    """Return what one types for a device."""
    return str(device.index) if isinstance(device, Gpu) else str(device.uuid)


def _line(row: Row, allotment: Allotment) -> dict[str, Any]:
    return {
        "label": row.label,
        "name": row.name,
        "memory": row.memory,
        "bar": [round(share * _THOUSANDTHS) for share in row.shares],
        "util": _figure(row.utilization),
        "temp": _figure(row.temperature),
        "watts": _figure(row.power),
        "users": list(row.users),
        "kind": row.kind,
        "here": row.here,
        "why": printable(allotment.why_not(row.device)),
        "part": "" if isinstance(row.device, Gpu) else str(row.device.gpu_index),
    }


def _figure(value: Any) -> int | str | None:
    return "" if value is None else None if value is UNKNOWN else round(value)
