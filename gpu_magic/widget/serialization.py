"""The machine as the panel's pages get it, as values of JSON, and what has changed since the last reading."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.devices.model import UNKNOWN, Gpu
from gpu_magic.errors import ChoiceError
from gpu_magic.gpus.auto import best_first, held_by
from gpu_magic.gpus.table import problem_text, rows
from gpu_magic.process.find import whole_gpus
from gpu_magic.process.guard import runtime_of
from gpu_magic.text import GIB, printable
from gpu_magic.widget.page_state import DeviceRow, Figures, Header

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_magic.devices.model import Device, Inventory, Unknown, Vendor
    from gpu_magic.gpus.table import Row
    from gpu_magic.process.given import Given
    from gpu_magic.process.view import Snapshot

__all__ = ["NO_MACHINE", "MachineChanges", "SerializedMachine", "figure", "key_of", "serialize"]


class MachineChanges(NamedTuple):
    """What is different between two readings: the changed fields of `SerializedMachine`, empty where none."""

    header: dict[str, Any]
    rows: dict[str, dict[str, Any]]
    figures: dict[str, Figures]


class SerializedMachine(NamedTuple):
    """One reading of the machine. `rows` and `figures` are by the key of the device, in the order shown."""

    header: Header
    rows: dict[str, DeviceRow]
    figures: dict[str, Figures]

    def since(self, before: SerializedMachine) -> MachineChanges | None:
        """Return what has changed since an earlier reading; None where the devices are not the same."""
        if list(self.rows) != list(before.rows):
            return None
        rows = {key: _changed(before.rows[key], row) for key, row in self.rows.items()}
        return MachineChanges(
            _changed(before.header, self.header),
            {key: fields for key, fields in rows.items() if fields},
            _changed(before.figures, self.figures),
        )


# What is there before the first reading.
NO_MACHINE = SerializedMachine(
    Header(
        host="",
        driver="",
        simulated="",
        problem="",
        cuda_state="",
        cuda_text="",
        runtime="CUDA",
        notes=[],
        allotted="",
        launch_devices="",
        hides_devices=False,
        memory_options="",
        least_busy="",
    ),
    {},
    {},
)


def serialize(snapshot: Snapshot, given: Given, memory: str) -> SerializedMachine:
    """Return the machine as the pages get it.

    Parameters
    ----------
    snapshot
        The machine.
    given
        What may be chosen of it.
    memory
        The options of the latest choice that say how frameworks may take memory.

    """
    shown = list(rows(snapshot))
    view = snapshot.kernel
    is_known = snapshot.driver_version is not UNKNOWN
    header = Header(
        host=printable(socket.gethostname()),
        driver=printable(f"driver {snapshot.driver_version}") if is_known else "",
        simulated=printable(snapshot.simulated),
        problem=problem_text(snapshot) or snapshot.limitation,
        cuda_state=view.state,
        cuda_text=view.cuda,
        runtime=runtime_of(view.vendor),
        notes=[*view.notes, *_notes_on_ipykernel()],
        allotted=view.allotted,
        launch_devices=_keys(_launch_devices(snapshot, given)),
        hides_devices=view.names is not UNKNOWN and not all(row.is_visible for row in shown),
        memory_options=memory,
        least_busy=_keys(_best_first(given)),
    )
    return SerializedMachine(
        header,
        {key_of(row.device): _device_row(row, given) for row in shown},
        {key_of(row.device): _figures(row) for row in shown},
    )


def _notes_on_ipykernel() -> list[str]:
    """Return what to know of ipykernel 7.0 to 7.3: it can miss what comes as a reply leaves (#1529)."""
    module: Any = sys.modules.get("ipykernel")  # a kernel has imported it
    if module is None or not (7, 0) <= module.version_info[:2] < (7, 4):
        return []
    what = f"ipykernel {module.__version__} can miss a cell or a click until the next one"
    return [f"{what}: pip install --upgrade ipykernel"]


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in now.items() if value != before.get(name)}


def _launch_devices(snapshot: Snapshot, given: Given) -> Sequence[Device]:
    """Return the devices of the launch; none where they, or their order, can't be known."""
    kernel, first = snapshot.kernel, snapshot.of_vendor(_first_vendor(snapshot))
    if kernel.inherited is None and not kernel.inherited_amd:
        return whole_gpus(first.devices) if first.is_uniform else []
    return [] if given.reading.devices is UNKNOWN else given.reading.devices


def _best_first(given: Given) -> Sequence[Device]:
    """Return what plain `auto` picks from, the best first."""
    first = _first_vendor(given.inventory)
    try:
        pool = [one for one in given.pool if not isinstance(one, Gpu) or one.vendor == first]
        return best_first(tuple(pool))
    except ChoiceError:  # it is not known what may be chosen
        return ()


def _first_vendor(inventory: Inventory) -> Vendor:
    return inventory.vendors[0] if inventory.vendors else "nvidia"


def _keys(devices: Sequence[Device]) -> str:
    return ",".join(map(key_of, devices))


def key_of(device: Device) -> str:
    """Return what one types for a device, which is its name in messages."""
    return device.number_text if isinstance(device, Gpu) else str(device.uuid)


def _device_row(row: Row, given: Given) -> DeviceRow:
    mine, others = row.shares.mine, row.shares.others
    return DeviceRow(
        label=row.label,
        name=row.name,
        total=row.total,
        total_gib=None if row.device.memory_total is UNKNOWN else round(row.device.memory_total / GIB, 1),
        memory_shares=[_thousandths(mine), _thousandths(others)],
        users=list(row.users),
        usage=row.usage,
        visible_as=row.visible_as,
        is_held=bool(held_by(row.device)),
        unavailable=printable(given.why_not(row.device)),
        parent="" if isinstance(row.device, Gpu) else str(row.device.gpu_index),
    )


def _figures(row: Row) -> Figures:
    used = row.device.status.memory_used
    return Figures(
        used=None if used is UNKNOWN else round(used / GIB, 1),
        used_share=_thousandths(row.shares.used),
        utilization=figure(row.utilization),
        temperature=figure(row.temperature),
        power=figure(row.power),
    )


def _thousandths(share: float) -> int:
    return round(share * 1000)


def figure(value: float | Unknown | None) -> int | str | None:
    """Return a figure as it is sent: None where it is unknown, "" where the device has none."""
    return "" if value is None else None if value is UNKNOWN else round(value)
