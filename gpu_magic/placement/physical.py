"""Which physical GPU is behind `cuda:i` in this process, and the other way round."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_magic.devices.model import Gpu
from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.errors import ChoiceError, PlacementError
from gpu_magic.process.session import current
from gpu_magic.process.view import Snapshot, take_snapshot
from gpu_magic.selection.select import find
from gpu_magic.selection.target import LogicalDevice, Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.devices.model import Device

__all__ = ["described", "free_bytes", "locate", "problem_of", "used_by_us"]


def locate(target: Target) -> LogicalDevice:
    """Return what this process calls a device.

    Raises
    ------
    PlacementError
        For a GPU that is not there, or that this process can't see.

    """
    if isinstance(target, LogicalDevice):
        return target
    inventory = take_snapshot(current())
    if inventory.problem:
        raise PlacementError(_without_hint(inventory.problem))
    try:
        device = find(target.identifier, inventory)
    except ChoiceError as error:
        raise PlacementError(str(error)) from None
    here = _visible(inventory)
    if here is None:
        raise PlacementError("Which GPUs this process sees is not known: %gpus says why. Try cuda:0.")
    for index, one in enumerate(here):
        if one is not None and one.uuid == device.uuid:
            return LogicalDevice("gpu", index)
    choice = f"%gpus {device.index if isinstance(device, Gpu) else device.uuid}"
    raise PlacementError(
        f"{device.label} is not among the GPUs of this process ({_map(here)}); {choice} chooses it, before "
        "CUDA is started."
    )


def problem_of(place: LogicalDevice) -> str:
    """Say why the machine, or this process, has no such GPU; empty where it has, or it can't be told."""
    if place.type not in ("", "cuda"):
        return f"{place} can't be used: no framework that is imported has such a device."
    inventory = take_snapshot(current())
    here = _visible(inventory)
    if inventory.problem:
        return f"{place} can't be used: {_without_hint(inventory.problem)}"
    if here is not None and place.index >= len(here):
        return f"{place} can't be used: this process sees {_map(here)}."
    if inventory.simulated:
        return f"{place} can't be used: the GPUs here are SIMULATED, and nothing runs on them."
    return ""


def described(places: Sequence[LogicalDevice]) -> list[str]:
    """Return each place with its physical GPU, where that is known: `cuda:0 = GPU 1 (NVIDIA A100 80GB)`."""
    is_cuda = any(place.kind == "gpu" and place.type in ("", "cuda") for place in places)
    inventory = take_snapshot(current()) if is_cuda else None
    here = (_visible(inventory) if inventory else None) or []
    mark = "SIMULATED " if inventory is not None and inventory.simulated else ""
    return [_described(place, here, mark) for place in places]


def free_bytes(place: LogicalDevice) -> int | None:
    """Return how much memory the machine has left there, as the driver or Linux says; None for unknown."""
    if place.kind == "cpu":
        return _available()
    device = _device(place)
    left = UNKNOWN if device is None else device.status.memory_free
    return None if left is UNKNOWN else left


def used_by_us(place: LogicalDevice) -> int | Unknown:
    """Return how much memory this process has there, as the driver says."""
    device = _device(place)
    processes = UNKNOWN if device is None else device.status.processes
    if processes is UNKNOWN:
        return UNKNOWN
    mine = [process.memory for process in processes if process.mine]
    known = [size for size in mine if size is not UNKNOWN]
    return sum(known) if mine and len(known) == len(mine) else UNKNOWN


def _device(place: LogicalDevice) -> Device | None:
    if place.type not in ("", "cuda"):
        return None
    inventory = take_snapshot(current())
    here = _visible(inventory) or []
    return here[place.index] if place.index < len(here) and not inventory.simulated else None


def _available() -> int | None:
    """Read what Linux could give to a process: free memory, and caches that can be dropped (proc(5))."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable:"))
        return int(line.split()[1]) << 10
    return None


def _without_hint(problem: str) -> str:
    """Leave out how to simulate a machine: nothing would run on it."""
    return problem.partition(". ")[0].rstrip(".") + "."


def _described(place: LogicalDevice, here: Sequence[Device | None], mark: str) -> str:
    is_cuda = place.kind == "gpu" and place.type in ("", "cuda")
    device = here[place.index] if is_cuda and place.index < len(here) else None
    if device is None:
        return "the CPU" if str(place) == "cpu" else str(place)
    name = "" if device.name is UNKNOWN else f" ({mark}{device.name})"
    return f"{place} = {device.label}{name}"


def _visible(inventory: Snapshot) -> list[Device | None] | None:
    """Return what `cuda:0`, `cuda:1`, … are; None where that is not known."""
    names = inventory.kernel.names
    if names is UNKNOWN:
        return None
    devices = {str(device.uuid): device for device in inventory.devices}
    return [devices.get(uuid) for uuid in names]  # they stand in the order of cuda:i


def _map(here: Sequence[Device | None]) -> str:
    pairs = (f"cuda:{index} = {one.label if one else 'unknown'}" for index, one in enumerate(here))
    return ", ".join(pairs) or "no GPU"
