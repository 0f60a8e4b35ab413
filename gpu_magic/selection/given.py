"""What a process was given: what CUDA_VISIBLE_DEVICES names, and a scheduler's own list, put together.

Each of the two can be the wider one. A scheduler's list is all that was given, whatever a script has made of
CUDA_VISIBLE_DEVICES, and a script can have narrowed that. Where they contradict each other, UUIDs are exact:
`--force` writes them, so a child process has what its parent has chosen. Of numbers nothing says which are
right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.model import Device, Gpu, parts
from gpu_magic.devices.record import record
from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.selection.mask import PCI, Reading, read

if TYPE_CHECKING:
    from gpu_magic.devices.model import Inventory
    from gpu_magic.selection.grant import Grant

__all__ = ["Given", "is_within", "settle"]


@record
class Given:
    """What a process was given.

    Parameters
    ----------
    reading
        What CUDA_VISIBLE_DEVICES means.
    devices
        The devices that it may use; UNKNOWN where that can't be known.
    granted
        Those that its scheduler gave, of which CUDA_VISIBLE_DEVICES may name only some.
    is_all
        Whether it may use every device of the machine.
    why
        Why `devices` is UNKNOWN, as a sentence.

    """

    reading: Reading
    devices: tuple[Device, ...] | Unknown
    granted: tuple[Device, ...] | Unknown
    is_all: bool
    why: str = ""


def settle(inventory: Inventory, inherited: tuple[str | None, str | None], grant: Grant) -> Given:
    """Return what a process was given.

    Parameters
    ----------
    inventory
        The machine.
    inherited
        CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER as it was started; None: not set.
    grant
        What its scheduler says.

    """
    mask, order = inherited
    reading = _read_mask(inventory, mask, order, grant)
    is_all = mask is None or reading.names_all
    named = inventory.devices if is_all else reading.named
    # Where a scheduler has written the same text into both, it is meant as CUDA reads it.
    lists = () if mask == grant.listed else _read_list(inventory, grant)
    if not lists:
        return Given(reading, named, named, is_all, _last(reading))
    if named is UNKNOWN:
        fitting = [gpus for gpus in lists if len(gpus) == len((mask or "").split(","))]
        if len(fitting) != 1:
            return Given(reading, UNKNOWN, UNKNOWN, is_all=False, why=_last(reading))
        return Given(reading, fitting[0], fitting[0], is_all=False)
    if wider := [gpus for gpus in lists if is_within(named, gpus)]:
        return Given(reading, named, wider[0] if len(wider) == 1 else named, is_all)
    if len(lists) == 1 and is_within(lists[0], named):
        devices = tuple(device for device in named if is_within((device,), lists[0]))
        return Given(reading, devices, lists[0], is_all=False)
    if reading.kind in ("uuid", "mig"):
        return Given(reading, named, lists[0] if len(lists) == 1 else UNKNOWN, is_all=False)
    which = "can mean several GPUs here" if mask is None else "are others"
    return Given(
        reading, UNKNOWN, UNKNOWN, is_all=False, why=f"{grant.by} lists {grant.listed}, which {which}."
    )


def is_within(devices: tuple[Device, ...], others: tuple[Device, ...]) -> bool:
    """Return whether all devices that CUDA can use are among others."""
    return {device.uuid for device in parts(devices)} <= {device.uuid for device in parts(others)}


def _last(reading: Reading) -> str:
    return reading.notes[-1] if reading.notes else ""


def _read_list(inventory: Inventory, grant: Grant) -> tuple[tuple[Device, ...], ...]:
    """Return what a scheduler's list can mean here; nothing where it has none, or names what can't be seen.

    Its numbers are those of device files. These can be in another order than nvidia-smi's numbers, which it
    may mean as well where all of the host's GPUs can be seen.
    """
    devices = inventory.devices
    if not grant.gpus:
        return ()
    if not all(entry.isdecimal() for entry in grant.gpus):
        named = tuple(device for device in devices if device.uuid in grant.gpus)
        return (named,) if len(named) == len(grant.gpus) else ()
    numbers = {int(entry) for entry in grant.gpus}
    files = [gpu.minor for gpu in inventory]
    found = [tuple(gpu for gpu in inventory if gpu.minor in numbers)]
    if set(files) == set(range(len(files))):
        found.append(tuple(gpu for gpu in inventory if gpu.index in numbers))
    complete = [gpus for gpus in found if len(gpus) == len(numbers)]
    return tuple(dict.fromkeys(tuple(gpus) for gpus in complete))


def _read_mask(inventory: Inventory, mask: str | None, order: str | None, grant: Grant) -> Reading:
    """Read a mask whose numbers can mean several things, where another source says which GPUs they are."""
    reading = read(mask, inventory, order)
    if reading.devices is not UNKNOWN or reading.kind != "index":
        return reading
    by_bus = read(mask, inventory, PCI)
    if by_bus.devices is UNKNOWN:
        return reading
    if mask == grant.listed:
        return by_bus
    fastest, gpus = inventory.fastest_first, [gpu for gpu in by_bus.devices if isinstance(gpu, Gpu)]
    # Whichever way CUDA counts, these are the same GPUs: all of the faster kind, for example.
    if fastest is not UNKNOWN and {fastest[gpu.index].index for gpu in gpus} == {gpu.index for gpu in gpus}:
        return by_bus
    return reading
