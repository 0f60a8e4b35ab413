"""Maps `cuda:i` of this process to a physical GPU, and knows the device on which a thread runs."""

from __future__ import annotations

import os
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.model import UNKNOWN, Unknown, sum_of
from gpu_magic.errors import ChoiceError, PlacementError
from gpu_magic.frameworks.target import LogicalDevice, Target, blocks_here
from gpu_magic.objects.host import free_host_bytes
from gpu_magic.process.find import find
from gpu_magic.process.session import current
from gpu_magic.process.view import Snapshot
from gpu_magic.text import simulated_mark

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_magic.devices.model import Device

__all__ = [
    "LazySnapshot",
    "described",
    "free_bytes",
    "innermost",
    "labels",
    "locate",
    "physical",
    "running",
    "used_by_us",
]


class _RunningBlocks(threading.local):
    """The blocks of `on_gpu` that run in this thread, the innermost last."""

    def __init__(self) -> None:
        self.scopes: list[Any] = []  # `on_gpu.scope.Scope`, which is loaded later


running = _RunningBlocks()


def innermost() -> LogicalDevice | None:
    """Return the device of this thread's block. None outside of blocks, or in a block on several devices."""
    here = [scope for scope in running.scopes if scope.token in blocks_here.get()]
    devices: tuple[LogicalDevice, ...] = here[-1].devices if here else ()
    return devices[0] if len(devices) == 1 else None


class LazySnapshot:
    """The machine during one request, read once, when a figure is first needed.

    Most requests read nothing, because they concern no CUDA device, or the frameworks know the figures.
    """

    @cached_property
    def snapshot(self) -> Snapshot:
        return Snapshot.take(current())

    @property
    def visible(self) -> tuple[Device | str, ...] | Unknown:
        """The devices of `cuda:0`, `cuda:1`, …: see `Snapshot.visible`."""
        return self.snapshot.visible

    @property
    def mapping(self) -> str:
        """The names of the visible GPUs in frameworks: `cuda:0 = GPU 1, cuda:1 = GPU 3`."""
        labels = ("unknown" if isinstance(gpu, str) else gpu.label for gpu in _known(self.visible))
        return ", ".join(f"cuda:{index} = {label}" for index, label in enumerate(labels)) or "no GPU"

    @property
    def problem(self) -> str:
        """Why no GPU can be read, as a sentence without advice. Empty if GPUs can be read."""
        problem = self.snapshot.problem
        return f"{problem.what}." if problem else ""


def locate(target: Target, machine: LazySnapshot) -> LogicalDevice:
    """Return a device's name in this process. Raise PlacementError if it is missing or not visible."""
    if isinstance(target, LogicalDevice):
        return target
    if machine.problem:
        raise PlacementError(machine.problem)
    try:
        device = find(target.identifier, machine.snapshot.machine)
    except ChoiceError as error:
        visible = {one.number_text for one in _known(machine.visible) if not isinstance(one, str)}
        error.ways = tuple(f"smi:{way}" for way in error.ways if way in visible)
        raise PlacementError(error.with_table("%gpus")) from None
    ordinal = machine.snapshot.ordinal(device)
    if machine.visible is UNKNOWN:
        raise PlacementError("Which GPUs are visible is unknown; %gpus shows why. Try cuda:0")
    if isinstance(ordinal, int):
        return LogicalDevice("gpu", ordinal)
    runtime = machine.snapshot.guard.runtime
    how = f"To choose it before {runtime} starts: %gpus {device.number_text}"
    if machine.snapshot.given.outside((device,)):
        how = "It was not given to this process."
    raise PlacementError(f"{device.label} is not visible here ({machine.mapping}). {how}")


def physical(device: LogicalDevice, machine: LazySnapshot) -> Device | None:
    """Return the physical GPU of `cuda:i`. None for another device, or if unknown."""
    if device.kind != "gpu" or device.type not in ("", "cuda"):
        return None
    found = _known(machine.visible)[device.index : device.index + 1]
    return next((gpu for gpu in found if not isinstance(gpu, str)), None)


def _known(visible: tuple[Device | str, ...] | Unknown) -> tuple[Device | str, ...]:
    return () if visible is UNKNOWN else visible


def _real(device: LogicalDevice, machine: LazySnapshot) -> Device | None:
    """Return the physical GPU that a framework's memory is on. None if the machine is simulated."""
    gpu = physical(device, machine)
    return None if gpu is None or machine.snapshot.simulated else gpu


def described(device: LogicalDevice, machine: LazySnapshot) -> str:
    """Return a device with its physical GPU, if that is known: `cuda:0 = GPU 1 (NVIDIA A100 80GB)`."""
    gpu = physical(device, machine)
    if gpu is None:
        return "the CPU" if str(device) == "cpu" else str(device)
    mark = simulated_mark(machine.snapshot.simulated)
    name = "" if gpu.name is UNKNOWN else f" ({mark}{gpu.name})"
    return f"{device} = {gpu.label}{name}"


def labels(devices: Iterable[LogicalDevice | str], machine: LazySnapshot) -> dict[str, str]:
    """Return the text to show for each device, by its name: `described`, or a framework's own name."""
    return {
        str(device): described(device, machine) if isinstance(device, LogicalDevice) else device
        for device in devices
    }


def free_bytes(device: LogicalDevice, machine: LazySnapshot) -> int | None:
    """Return the free bytes of a device, as the driver or Linux reports them. None if unknown."""
    if device.kind == "cpu":
        return free_host_bytes()
    gpu = _real(device, machine)
    return None if gpu is None or gpu.status.memory_free is UNKNOWN else gpu.status.memory_free


def used_by_us(device: LogicalDevice, machine: LazySnapshot, *, with_children: bool = True) -> int | Unknown:
    """Return the bytes of this process and its children on a GPU, as the driver reports them."""
    gpu = _real(device, machine)
    processes = UNKNOWN if gpu is None else gpu.status.processes
    if processes is UNKNOWN or all(process.is_this_process is False for process in processes):
        return UNKNOWN
    counted = [one for one in processes if with_children or one.pid == os.getpid()]
    return sum_of((process.is_this_process, process.memory) for process in counted)
