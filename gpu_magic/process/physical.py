"""Which physical GPU is `cuda:i` in this process, and on which device a thread runs."""

from __future__ import annotations

import contextlib
import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.errors import ChoiceError, PlacementError
from gpu_magic.frameworks.target import LogicalDevice, Target
from gpu_magic.process.find import find
from gpu_magic.process.guard import runtime_of
from gpu_magic.process.session import current
from gpu_magic.process.view import Snapshot, take_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpu_magic.devices.model import Device

__all__ = [
    "LazySnapshot",
    "described",
    "free_bytes",
    "innermost",
    "labels",
    "locate",
    "physical",
    "problem_of",
    "running",
    "used_by_us",
]


class _RunningBlocks(threading.local):
    """The blocks of `on_gpu` that run in this thread, the innermost last."""

    def __init__(self) -> None:
        self.scopes: list[OnDevices] = []


running = _RunningBlocks()


class OnDevices(Protocol):
    """What runs on devices, and can be set aside while a block ends in which it began."""

    devices: tuple[LogicalDevice, ...]

    def leave(self) -> None: ...

    def enter_again(self) -> None: ...


def innermost() -> LogicalDevice | None:
    """Return the device of the block that this thread runs; None outside of blocks, and in one on several."""
    devices = running.scopes[-1].devices if running.scopes else ()
    return devices[0] if len(devices) == 1 else None


class LazySnapshot:
    """The machine, for the length of one request: read once, when a figure of it is first needed.

    Most requests concern no CUDA device, or only what the frameworks know themselves, and read nothing.
    """

    @cached_property
    def snapshot(self) -> Snapshot:
        """The machine as it was when this was first asked for."""
        return take_snapshot(current())


def locate(target: Target, machine: LazySnapshot) -> LogicalDevice:
    """Return what this process calls a device.

    Raises
    ------
    PlacementError
        The GPU does not exist, or this process can't see it.

    """
    if isinstance(target, LogicalDevice):
        return target
    snapshot = machine.snapshot
    if snapshot.problem:
        raise PlacementError(_without_hint(snapshot.problem))
    try:
        device = find(target.identifier, snapshot)
    except ChoiceError as error:
        raise PlacementError(str(error)) from None
    visible = _visible(snapshot)
    if visible is None:
        raise PlacementError("Which GPUs this process sees is not known: %gpus says why. Try cuda:0.")
    for index, candidate in enumerate(visible):
        if candidate is not None and candidate.uuid == device.uuid:
            return LogicalDevice("gpu", index)
    choice = f"%gpus {device.number_text}"
    raise PlacementError(
        f"{device.label} is not among the GPUs of this process ({_mapping_text(visible)}); {choice} chooses "
        f"it, before {runtime_of(snapshot.kernel.vendor)} is started."
    )


def problem_of(device: LogicalDevice, machine: LazySnapshot) -> str:
    """Return why this process has no such GPU, as a sentence; empty where it has, or can't know."""
    if not _can_be_cuda(device):
        return f"{device} can't be used: no framework that is imported has such a device."
    snapshot = machine.snapshot
    visible = _visible(snapshot)
    if snapshot.problem:
        return f"{device} can't be used. {_without_hint(snapshot.problem)}"
    if visible is not None and device.index >= len(visible):
        return f"{device} can't be used: this process sees {_mapping_text(visible)}."
    if snapshot.simulated:
        return f"{device} can't be used: the GPUs here are SIMULATED, and nothing runs on them."
    return ""


def described(device: LogicalDevice, machine: LazySnapshot) -> str:
    """Return a device with its physical GPU, where that is known: `cuda:0 = GPU 1 (NVIDIA A100 80GB)`."""
    gpu = physical(device, machine) if device.kind == "gpu" else None
    if gpu is None:
        return "the CPU" if str(device) == "cpu" else str(device)
    mark = "SIMULATED " if machine.snapshot.simulated else ""
    name = "" if gpu.name is UNKNOWN else f" ({mark}{gpu.name})"
    return f"{device} = {gpu.label}{name}"


def labels(devices: Iterable[LogicalDevice | str], machine: LazySnapshot) -> dict[str, str]:
    """Return what to show for each device, by its name: `described`, or a framework's own name for it."""
    return {
        str(device): described(device, machine) if isinstance(device, LogicalDevice) else device
        for device in devices
    }


def free_bytes(device: LogicalDevice, machine: LazySnapshot) -> int | None:
    """Return how many bytes a device has left, as the driver or Linux says; None for unknown."""
    if device.kind == "cpu":
        return _available()
    gpu = _real(device, machine)
    left = UNKNOWN if gpu is None else gpu.status.memory_free
    return None if left is UNKNOWN else left


def used_by_us(device: LogicalDevice, machine: LazySnapshot) -> int | Unknown:
    """Return how many bytes this process has on a GPU, as the driver says."""
    gpu = _real(device, machine)
    processes = UNKNOWN if gpu is None else gpu.status.processes
    if processes is UNKNOWN:
        return UNKNOWN
    mine = [process.memory for process in processes if process.mine]
    known = [size for size in mine if size is not UNKNOWN]
    return sum(known) if mine and len(known) == len(mine) else UNKNOWN


def _can_be_cuda(device: LogicalDevice) -> bool:
    """Return whether a GPU is one of CUDA's, as far as its type says."""
    return device.type in ("", "cuda")


def _real(device: LogicalDevice, machine: LazySnapshot) -> Device | None:
    """Return the physical GPU that a framework's memory is on: never a simulated one."""
    gpu = physical(device, machine)
    return None if gpu is None or machine.snapshot.simulated else gpu


def physical(device: LogicalDevice, machine: LazySnapshot) -> Device | None:
    """Return the physical GPU that `cuda:i` is; None where that is not known."""
    if not _can_be_cuda(device):
        return None
    visible = _visible(machine.snapshot) or []
    return visible[device.index] if device.index < len(visible) else None


def _visible(snapshot: Snapshot) -> list[Device | None] | None:
    """Return what `cuda:0`, `cuda:1`, … are; None where that is not known."""
    names = snapshot.kernel.names
    if names is UNKNOWN:
        return None
    devices = {str(device.uuid): device for device in snapshot.devices}
    return [devices.get(uuid) for uuid in names]  # the names are in the order of cuda:i


def _mapping_text(visible: Sequence[Device | None]) -> str:
    """Return what frameworks call the visible GPUs: `cuda:0 = GPU 1, cuda:1 = GPU 3`."""
    pairs = (f"cuda:{index} = {gpu.label if gpu else 'unknown'}" for index, gpu in enumerate(visible))
    return ", ".join(pairs) or "no GPU"


def _without_hint(problem: str) -> str:
    """Return a problem without what may be done about it, which is no matter of a block."""
    return problem.partition(". ")[0].rstrip(".") + "."


def _available() -> int | None:
    """Return how many bytes Linux could give to a process: free memory, and caches it can drop (proc(5))."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable:"))
        return int(line.split()[1]) << 10
    return None
