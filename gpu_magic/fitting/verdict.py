"""Whether a step fits on the GPUs of this process: the memory that it needs, beside what each has left."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.selection.target import LogicalDevice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_magic.devices.model import Device
    from gpu_magic.frameworks.base import Framework
    from gpu_magic.process.view import Snapshot

__all__ = ["CONTEXT", "Room", "rooms"]

# What CUDA takes of a GPU when a process starts it there, with PyTorch's kernels: about half a GiB, by model
# and version. cuBLAS and cuDNN take some more for their work.
CONTEXT = 1 << 29


@dataclass(frozen=True)
class Room:
    """The room for a step on one GPU, in bytes.

    Parameters
    ----------
    name
        What frameworks call it here: `cuda:0`.
    label
        The physical GPU: `GPU 3`.
    available
        What is left there: what the driver has free, what the framework has cached and does not use, and what
        the step's own objects take there already. UNKNOWN where the driver does not say.
    context
        What this process needs there besides, to start CUDA; 0 where it has.

    """

    name: str
    label: str
    available: int | Unknown
    context: int

    def fits(self, peak: int) -> bool | Unknown:
        """Return whether a step with a peak of so many bytes fits."""
        return UNKNOWN if self.available is UNKNOWN else peak + self.context <= self.available


def rooms(
    snapshot: Snapshot, framework: Framework, present: Mapping[LogicalDevice, int]
) -> tuple[Room, ...] | Unknown:
    """Return the room on each GPU that this process sees, in the order of `cuda:i`; UNKNOWN for unknown GPUs.

    Parameters
    ----------
    snapshot
        The machine now.
    framework
        The framework of the step, which can have memory cached.
    present
        The bytes that the step's own objects take on each device already.

    """
    names = snapshot.kernel.names
    if names is UNKNOWN:
        return UNKNOWN
    devices = {str(device.uuid): device for device in snapshot.devices}
    found = [(index, devices.get(uuid)) for index, uuid in enumerate(names)]
    return tuple(
        _room(index, device, snapshot, framework, present) for index, device in found if device is not None
    )


def _room(
    index: int,
    device: Device,
    snapshot: Snapshot,
    framework: Framework,
    present: Mapping[LogicalDevice, int],
) -> Room:
    name = LogicalDevice("gpu", index, "cuda")
    free = device.status.memory_free
    if free is not UNKNOWN:
        pool = None if snapshot.simulated else framework.pools().get(name)
        cached = 0 if pool is None else pool.reserved - pool.used
        free += cached + present.get(name, 0)
    processes = () if device.status.processes is UNKNOWN else device.status.processes
    has_context = any(process.mine and process.pid == os.getpid() for process in processes)
    return Room(str(name), device.label, free, 0 if has_context else CONTEXT)
