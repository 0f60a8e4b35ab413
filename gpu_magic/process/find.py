"""Finds a device of the machine by a number, `2:1`, or the start of a UUID."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from gpu_magic.devices.model import Device, Gpu, MigInstance
from gpu_magic.errors import ChoiceError
from gpu_magic.process.mask import fitting

if TYPE_CHECKING:
    from gpu_magic.devices.model import Inventory
    from gpu_magic.devices.problems import GpuProblem

__all__ = [
    "Unusable",
    "check_usable",
    "find",
    "mig_instances",
    "usable_devices",
    "whole_gpus",
    "why_unusable",
]

_MOST_NAMED = 4  # UUIDs in one message
_UUID_LENGTH = 40
_NONE_MADE = "is split by MIG and has no instance. An administrator has to make one first."


class Unusable(enum.Enum):
    """Why a GPU that answers cannot be chosen as a whole. `str` returns words that follow "GPU 1 is"."""

    SPLIT = "split by MIG"
    PROHIBITED = "in compute mode Prohibited"
    UNNAMED = "without a UUID and a bus ID"

    def __str__(self) -> str:
        return self.value


def find(identifier: int | str, inventory: Inventory) -> Device:
    """Return the device that an identifier of `request.Named` names.

    It raises ChoiceError if no device or several devices match, or if the device cannot be used.
    """
    if isinstance(identifier, int):
        return check_usable(_by_number(identifier, inventory))
    if identifier[0].isdecimal():
        return _by_instance_number(identifier, inventory)
    return _by_uuid(identifier, inventory)


def _by_number(index: int, inventory: Inventory) -> Gpu:
    count = len(inventory)
    if index >= count:
        there = {0: "no GPU", 1: "only GPU 0"}.get(count, f"GPUs 0 to {count - 1}")
        raise ChoiceError(f"There is no GPU {index}. This machine has {there}.")
    return inventory[index]


def _by_instance_number(name: str, inventory: Inventory) -> MigInstance:
    index, _, number = name.partition(":")
    gpu = _by_number(int(index), inventory)
    if not gpu.is_split:
        check_usable(gpu)
        is_range = int(index) < int(number) < len(inventory)
        ways = [index, *([f"{index}-{number}"] if is_range else [])]
        raise ChoiceError(f"{gpu.label} is not split by MIG, so there is no {name}.", ways=ways)
    if not gpu.mig:
        raise ChoiceError(f"{gpu.label} {_NONE_MADE}")
    found = next((instance for instance in gpu.mig if instance.number_text == name), None)
    if found is None:
        raise ChoiceError(f"{gpu.label} has no MIG instance {number}.", ways=_numbers(gpu))
    return found


def _by_uuid(prefix: str, inventory: Inventory) -> Device:
    number = prefix.removeprefix("GPU-")
    if number.isdecimal() and number in {str(gpu.index) for gpu in inventory}:
        what = f"{prefix} could be GPU {number} or the start of a UUID. For the UUID, type more of it."
        raise ChoiceError(what, ways=[number])
    fits = fitting(prefix, inventory)
    if not fits:
        kind = "MIG instance" if prefix.startswith("MIG") else "GPU"
        what = f"is {prefix}" if "/" in prefix else f"has a UUID that starts with {prefix}"
        raise ChoiceError(f"No {kind} here {what}. Press Tab to see the GPUs.")
    if len(fits) > 1:
        uuids, length = [str(device.uuid) for device in fits], len(prefix) + 1
        while length < _UUID_LENGTH and len({uuid[:length] for uuid in uuids}) < len(uuids):
            length += 1
        longer = [uuid[:length] for uuid in uuids[:_MOST_NAMED]]
        raise ChoiceError(f"{prefix} matches {len(fits)} devices. Type more of the UUID.", ways=longer)
    return check_usable(fits[0]) if isinstance(fits[0], Gpu) else fits[0]


def check_usable(gpu: Gpu) -> Gpu:
    """Return the GPU, or raise ChoiceError if it cannot be chosen as a whole: see `why_unusable`."""
    why = why_unusable(gpu)
    if why is Unusable.SPLIT:
        way = "is split by MIG, so it cannot be chosen as a whole." if gpu.mig else _NONE_MADE
        raise ChoiceError(f"{gpu.label} {way}", ways=_numbers(gpu))
    if why:
        how = f" An administrator can change that: nvidia-smi -i {gpu.index} -c DEFAULT"
        way = how if why is Unusable.PROHIBITED else ""
        raise ChoiceError(f"{gpu.label} cannot be chosen because it is {why}.{way}")
    return gpu


def _numbers(gpu: Gpu) -> list[str]:
    return [instance.number_text for instance in gpu.mig]


def whole_gpus(pool: tuple[Device, ...]) -> tuple[Gpu, ...]:
    """Return the GPUs of a pool that can be chosen as a whole."""
    return tuple(gpu for gpu in pool if isinstance(gpu, Gpu) and not why_unusable(gpu))


def why_unusable(gpu: Gpu) -> GpuProblem | Unusable | None:
    """Return why a GPU cannot be chosen as a whole. None if it can."""
    if gpu.problem:
        return gpu.problem
    if gpu.is_split:
        return Unusable.SPLIT
    if gpu.is_prohibited:
        return Unusable.PROHIBITED
    return None if gpu.identity else Unusable.UNNAMED


def usable_devices(pool: tuple[Device, ...]) -> tuple[Device, ...]:
    """Return the devices of a pool that a process can use: whole GPUs and MIG instances."""
    return tuple(one for one in pool if isinstance(one, MigInstance) or not why_unusable(one))


def mig_instances(pool: tuple[Device, ...]) -> tuple[MigInstance, ...]:
    """Return the MIG instances of a pool."""
    return tuple(device for device in pool if isinstance(device, MigInstance))
