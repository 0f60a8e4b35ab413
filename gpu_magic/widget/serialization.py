"""What goes to the page, each second: the machine as JSON's types, and what has changed of it."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.devices.model import Gpu
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.display.rows import rows
from gpu_magic.selection.allotment import whole_gpus
from gpu_magic.text import GIB, printable

if TYPE_CHECKING:
    from gpu_magic.devices.model import Device
    from gpu_magic.devices.unknown import Unknown
    from gpu_magic.display.rows import Row
    from gpu_magic.process.view import Snapshot
    from gpu_magic.selection.allotment import Allotment

__all__ = ["UTILIZATION", "Picture", "picture"]

UTILIZATION = 2  # its place among the figures
_THOUSANDTHS = 1000

Json = dict[str, Any]


class Picture(NamedTuple):
    """The machine as the page gets it. Devices are called what one types behind `%gpus`: `3`, `MIG-41b7…`.

    Parameters
    ----------
    head
        What stands around the rows. `host`, `driver`, `simulated` (a profile), `problem`; `state` and `cuda`
        of the guard, its `notes`; `given`: what a reset leads to, in order; `chosen`: whether some GPUs are
        known to be hidden; `least`: what `auto` picks from, the least busy first.
    rows
        For each device: `label`, `name`, `total`, `users`, `kind`, `here` as in `Row`; `whose`: thousandths
        of the memory that are mine and others'; `why`: why it can't be chosen; `part`: the GPU that an
        instance is a part of.
    now
        For each device its figures, together, as they all move: GiB in use, thousandths of the memory in
        use, utilisation, temperature, power. None is unknown, "" nothing to say.

    """

    head: Json
    rows: dict[str, Json]
    now: dict[str, list[Any]]

    def since(self, before: Picture) -> Json | None:
        """Return what has changed: parts of `head`, `rows` and `now`. None where there are other rows."""
        if list(self.rows) != list(before.rows):
            return None
        head = _changed(before.head, self.head)
        rows = {key: _changed(before.rows[key], row) for key, row in self.rows.items()}
        rows = {key: fields for key, fields in rows.items() if fields}
        found = {"head": head, "rows": rows, "now": _changed(before.now, self.now)}
        return {name: part for name, part in found.items() if part}


def picture(snapshot: Snapshot, allotment: Allotment) -> Picture:
    """Return a machine as the page gets it, with what may be chosen of it."""
    found = list(rows(snapshot))
    view = snapshot.kernel
    driver = "" if snapshot.driver_version is UNKNOWN else printable(f"driver {snapshot.driver_version}")
    head = {
        "host": printable(socket.gethostname()),
        "driver": driver,
        "simulated": printable(snapshot.simulated),
        "problem": snapshot.problem,
        "state": view.state,
        "cuda": view.cuda,
        "notes": list(view.notes),
        "given": ",".join(_given(snapshot)),
        "chosen": view.names is not UNKNOWN and not all(row.is_here for row in found),
        "least": ",".join(map(_typed, allotment.least_busy)),
    }
    keys = [_typed(row.device) for row in found]
    lines = {key: _line(row, allotment) for key, row in zip(keys, found, strict=True)}
    return Picture(head, lines, dict(zip(keys, map(_figures, found), strict=True)))


def _given(snapshot: Snapshot) -> list[str]:
    """Return what the kernel was started with; nothing where that, or its order, can't be known."""
    view = snapshot.kernel
    if view.given is None and (view.inherited is not None or not snapshot.is_uniform):
        return []
    if view.given is None:
        return [_typed(gpu) for gpu in whole_gpus(snapshot.devices)]
    known = {device.uuid: _typed(device) for device in snapshot.devices}
    return [known[uuid] for uuid in view.given if uuid in known]


def _changed(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in now.items() if value != before.get(name)}


def _typed(device: Device) -> str:
    return str(device.index) if isinstance(device, Gpu) else str(device.uuid)


def _line(row: Row, allotment: Allotment) -> Json:
    mine, others, _ = row.shares
    return {
        "label": row.label,
        "name": row.name,
        "total": row.total,
        "whose": [round(mine * _THOUSANDTHS), round(others * _THOUSANDTHS)],
        "users": list(row.users),
        "kind": row.kind,
        "here": row.here,
        "why": printable(allotment.why_not(row.device)),
        "part": "" if isinstance(row.device, Gpu) else str(row.device.gpu_index),
    }


def _figures(row: Row) -> list[Any]:
    used = row.device.status.memory_used
    gib = None if used is UNKNOWN else round(used / GIB, 1)
    figures = (row.utilization, row.temperature, row.power)
    return [gib, round(row.shares[-1] * _THOUSANDTHS), *map(_figure, figures)]


def _figure(value: float | Unknown | None) -> int | str | None:
    return "" if value is None else None if value is UNKNOWN else round(value)
