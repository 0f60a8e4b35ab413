"""A GPU or a MIG instance as `gpu-magic --json` has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpu_magic.devices.model import Gpu
from gpu_magic.devices.unknown import UNKNOWN

if TYPE_CHECKING:
    from gpu_magic.devices.model import Device

__all__ = ["record_of"]


def record_of(device: Device) -> dict[str, Any]:
    """Return a device as JSON has it; null for what the driver would not tell."""
    status = device.status
    processes = None if status.processes is UNKNOWN else status.processes
    return {
        "index": device.index if isinstance(device, Gpu) else None,
        "vendor": device.vendor if isinstance(device, Gpu) else "nvidia",
        "gpu": device.index if isinstance(device, Gpu) else device.gpu_index,
        "uuid": _known(device.uuid),
        "name": _known(device.name),
        "memory_total": _known(device.memory_total),
        "memory_used": _known(status.memory_used),
        "utilization": _known(status.utilization),
        "temperature": _known(status.temperature),
        "power": _known(status.power),
        "problem": device.problem if isinstance(device, Gpu) else "",
        "processes": processes
        and [
            {name: _known(getattr(one, name)) for name in ("pid", "name", "owner", "memory")}
            for one in processes
        ],
    }


def _known(value: object) -> object:
    return None if value is UNKNOWN else value
