"""Finds a device of the machine by what one types for it: a number, `2:1`, or the beginning of a UUID."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.model import Device, Gpu, MigInstance
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.errors import ChoiceError
from gpu_magic.process.mask import fitting_instances

if TYPE_CHECKING:
    from gpu_magic.devices.inventory import Inventory

__all__ = ["find"]

_MOST_NAMED = 4  # UUIDs in one message
_UUID_LENGTH = 40


def find(identifier: int | str, inventory: Inventory) -> Device:
    """Return the device with a number (nvidia-smi's), or whose UUID begins as given.

    Parameters
    ----------
    identifier
        As in `request.Named`.
    inventory
        The machine.

    Raises
    ------
    ChoiceError
        There is no such device, or several, or it can't be used.

    """
    first = inventory.of_vendor(inventory.vendors[0] if inventory.vendors else "nvidia")
    if isinstance(identifier, int):
        gpu = _by_number(identifier, first)
        check_usable(gpu)
        return gpu
    if identifier.startswith("amd:"):
        gpu = _by_amds_number(identifier, inventory)
        check_usable(gpu)
        return gpu
    if identifier[0].isdecimal():
        return _by_instance_number(identifier, first)
    return _by_uuid(identifier, inventory)


def _by_number(index: int, inventory: Inventory) -> Gpu:
    if index >= len(inventory):
        kind = "AMD GPU" if any(gpu.prefix for gpu in inventory) else "GPU"
        raise ChoiceError(f"There is no {kind} {index}: this machine has {_span(len(inventory), kind)}.")
    return inventory[index]


def _by_amds_number(name: str, inventory: Inventory) -> Gpu:
    amd = inventory.of_vendor("amd")
    if not amd.gpus and not inventory.problem:
        raise ChoiceError(f"{name}: this machine has no AMD GPU; %gpus shows what it has.")
    return _by_number(int(name.removeprefix("amd:")), amd)


def _by_instance_number(name: str, inventory: Inventory) -> MigInstance:
    index, _, number = name.partition(":")
    gpu = _by_number(int(index), inventory)
    if not gpu.is_split:
        check_usable(gpu)
        is_range = int(index) < int(number) < len(inventory)
        several = f", or {index}-{number} for several GPUs" if is_range else ""
        raise ChoiceError(f"{gpu.label} is not split by MIG, so there is no {name}; try {index}{several}.")
    there = " or ".join(instance.number_text for instance in gpu.mig)
    if not there:
        raise ChoiceError(
            f"{gpu.label} is split by MIG, with no instance made; an administrator has to make one first."
        )
    found = next((instance for instance in gpu.mig if instance.number_text == name), None)
    if found is None:
        raise ChoiceError(f"{gpu.label} has no MIG instance {number}; try {there}.")
    return found


def _by_uuid(prefix: str, inventory: Inventory) -> Device:
    number = prefix.removeprefix("GPU-")
    if number.isdecimal() and number in {str(gpu.index) for gpu in inventory}:
        raise ChoiceError(
            f"{prefix} could be GPU {number}, or the start of a UUID; try {number}, or more of the UUID."
        )
    fits: list[Device] = [*fitting_instances(prefix, inventory)]
    fits += [gpu for gpu in inventory if gpu.uuid is not UNKNOWN and gpu.uuid.startswith(prefix)]
    if not fits and "/" in prefix:
        raise ChoiceError(f"No MIG instance here is {prefix}; press Tab to see what there is.")
    if not fits:
        kind = "MIG instance" if prefix.startswith("MIG") else "GPU"
        raise ChoiceError(
            f"No {kind} here has a UUID that begins with {prefix}; press Tab to see what there is."
        )
    if len(fits) > 1:
        longer = _distinct_prefixes([str(device.uuid) for device in fits], len(prefix) + 1)
        shown = " or ".join(longer[:_MOST_NAMED] + ["…"] * (len(longer) > _MOST_NAMED))
        raise ChoiceError(f"{prefix} fits {len(fits)} devices; type more of it, {shown}.")
    device = fits[0]
    if isinstance(device, Gpu):
        check_usable(device)
    return device


def _distinct_prefixes(uuids: list[str], length: int) -> list[str]:
    """Return the beginnings of UUIDs, at least so long, and long enough that they differ."""
    while length < _UUID_LENGTH and len({uuid[:length] for uuid in uuids}) < len(uuids):
        length += 1
    return [uuid[:length] for uuid in uuids]


def _span(count: int, kind: str) -> str:
    return {0: f"no {kind}", 1: f"{kind} 0 alone"}.get(count, f"{kind}s 0 to {count - 1}")


def check_usable(gpu: Gpu) -> None:
    """Check that a GPU can be chosen as a whole.

    Raises
    ------
    ChoiceError
        It does not answer, has no UUID, is split by MIG, or its compute mode lets no process use it.

    """
    if gpu.problem:
        raise ChoiceError(f"{gpu.label} can't be chosen, as it is {gpu.problem}.")
    if gpu.uuid is UNKNOWN:
        raise ChoiceError(f"{gpu.label} can't be chosen: the driver does not report its UUID.")
    if gpu.is_split:
        there = " or ".join(instance.number_text for instance in gpu.mig)
        there = there or "an administrator has to make one first"
        raise ChoiceError(f"{gpu.label} is split by MIG, so choose an instance of it; try {there}.")
    if gpu.is_prohibited:
        raise ChoiceError(
            f"{gpu.label} can't be chosen, as {why_unusable(gpu)}: an administrator can change that, "
            f"nvidia-smi -i {gpu.index} -c DEFAULT."
        )


def whole_gpus(pool: tuple[Device, ...]) -> tuple[Gpu, ...]:
    """Return the GPUs of a pool that can be chosen as a whole."""
    return tuple(gpu for gpu in pool if isinstance(gpu, Gpu) and not why_unusable(gpu))


def why_unusable(gpu: Gpu) -> str:
    """Return why a GPU can't be chosen as a whole, as a clause; empty where it can."""
    if gpu.problem:
        return f"it is {gpu.problem}"
    if gpu.is_split:
        return "it is split by MIG"
    if gpu.is_prohibited:
        return "it is in compute mode Prohibited, in which no process can use it"
    return "its UUID is unknown" if gpu.uuid is UNKNOWN else ""


def mig_instances(pool: tuple[Device, ...]) -> tuple[MigInstance, ...]:
    """Return the MIG instances of a pool."""
    return tuple(device for device in pool if isinstance(device, MigInstance))
