"""What a process was given: what its variables name, and a scheduler's own list, put together.

The variables are CUDA_VISIBLE_DEVICES, and with AMD's GPUs those of ROCm. Each of the two sources can be the
wider one. A scheduler's list is all that was given, whatever a script has made of the variables, and a script
can have narrowed that. Where they contradict each other, UUIDs are exact: `--force` writes them, so a child
process has what its parent has chosen. Of numbers nothing says which are right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_magic.devices.model import Device, Gpu, parts
from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.selection.grant import Grant
from gpu_magic.selection.hip import in_use, read_hip
from gpu_magic.selection.mask import PCI, Reading, read
from gpu_magic.selection.seen import join, together
from gpu_magic.selection.visible import Variables

if TYPE_CHECKING:
    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.devices.model import Vendor

__all__ = ["Given", "is_within", "settle"]

# The number of the first GPU's device file: /dev/nvidia0, /dev/dri/renderD128.
_FIRST_FILE: dict[Vendor, int] = {"nvidia": 0, "amd": 128}


@dataclass(frozen=True, slots=True)
class Given:
    """What a process was given.

    Parameters
    ----------
    reading
        What the variables mean.
    devices
        The devices that it may use; UNKNOWN where that can't be known.
    granted
        Those that its scheduler gave, of which the variables may name only some.
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


def settle(inventory: Inventory, inherited: Variables, grant: Grant) -> Given:
    """Return what a process was given.

    Parameters
    ----------
    inventory
        The machine.
    inherited
        The variables as it was started.
    grant
        What its scheduler says. On a machine with the GPUs of both vendors it is taken to be of NVIDIA's.

    """
    if inventory.vendors == ("amd",):
        return _settle_amd(inventory, inherited, grant)
    if "amd" in inventory.vendors:
        nvidia = settle(inventory.of_vendor("nvidia"), inherited, grant)
        return _both(nvidia, _settle_amd(inventory.of_vendor("amd"), inherited, Grant()))
    mask, order = inherited.mask, inherited.order
    reading = _read_mask(inventory, mask, order, grant)
    is_all = mask is None or reading.names_all
    named = inventory.devices if is_all else reading.named
    # Where a scheduler has written the same text into both, it is meant as CUDA reads it.
    lists = () if mask == grant.listed else _read_list(inventory, grant, "nvidia")
    is_exact = reading.kind in ("uuid", "mig")
    return _put_together(reading, named, mask, lists, grant, is_all=is_all, is_exact=is_exact)


def _settle_amd(inventory: Inventory, inherited: Variables, grant: Grant) -> Given:
    reading, values = read_hip(inherited, inventory), in_use(inherited)
    is_all = not values or reading.names_all
    named = inventory.devices if is_all else reading.devices
    lists: tuple[tuple[Device, ...], ...] = ()
    if grant.gpus and grant.listed == inherited.rocr:  # it is meant as ROCm's runtime reads it
        left = read_hip(Variables(rocr=inherited.rocr), inventory).devices
        lists = () if left is UNKNOWN else (left,)
        # Slurm can have written it into both, and HIP would count by the second what the first has left. What
        # is chosen is written into HIP_VISIBLE_DEVICES, and then HIP does not read the second.
        if inherited.hip is None and inherited.mask == inherited.rocr:
            named = left
    elif grant.listed not in values.values():
        lists = _read_list(inventory, grant, "amd")
        # Whatever the other variables mean, HIP sees no more than the first one has left.
        left = read_hip(Variables(rocr=inherited.rocr), inventory).devices
        if named is UNKNOWN and left is not UNKNOWN:
            lists = tuple(gpus for gpus in lists if is_within(gpus, left))
    last = next(filter(None, reversed(values.values())), "" if values else None)
    is_exact = (last or "").startswith("GPU-")
    return _put_together(reading, named, last, lists, grant, is_all=is_all, is_exact=is_exact)


def _put_together(
    reading: Reading,
    named: tuple[Device, ...] | Unknown,
    value: str | None,
    lists: tuple[tuple[Device, ...], ...],
    grant: Grant,
    *,
    is_all: bool,
    is_exact: bool,
) -> Given:
    """Return what was given by variables and by a list.

    Parameters
    ----------
    reading, named, is_all
        What the variables mean, which devices these are, and whether it is every one.
    value
        The value that names them; None: no variable is set.
    lists
        What a scheduler's list can mean.
    grant
        What the scheduler says.
    is_exact
        Whether the value has UUIDs.

    """
    if not lists:
        return Given(reading, named, named, is_all, _last(reading))
    if named is UNKNOWN:
        fitting = [gpus for gpus in lists if len(gpus) == len((value or "").split(","))]
        if len(fitting) != 1:
            return Given(reading, UNKNOWN, UNKNOWN, is_all=False, why=_last(reading))
        return Given(reading, fitting[0], fitting[0], is_all=False)
    if wider := [gpus for gpus in lists if is_within(named, gpus)]:
        return Given(reading, named, wider[0] if len(wider) == 1 else named, is_all)
    if len(lists) == 1 and is_within(lists[0], named):
        devices = tuple(device for device in named if is_within((device,), lists[0]))
        return Given(reading, devices, lists[0], is_all=False)
    if is_exact:
        return Given(reading, named, lists[0] if len(lists) == 1 else UNKNOWN, is_all=False)
    which = "can mean several GPUs here" if value is None else "are others"
    return Given(
        reading, UNKNOWN, UNKNOWN, is_all=False, why=f"{grant.by} lists {grant.listed}, which {which}."
    )


def _both(one: Given, other: Given) -> Given:
    """Return what was given of both vendors' GPUs; that of which one part is not known is not known."""
    reading = join(one.reading, other.reading)
    return Given(
        reading,
        together(one.devices, other.devices),
        one.granted,
        one.is_all and other.is_all,
        one.why or other.why,
    )


def is_within(devices: tuple[Device, ...], others: tuple[Device, ...]) -> bool:
    """Return whether all devices that CUDA can use are among others."""
    return {device.uuid for device in parts(devices)} <= {device.uuid for device in parts(others)}


def _last(reading: Reading) -> str:
    return reading.notes[-1] if reading.notes else ""


def _read_list(inventory: Inventory, grant: Grant, vendor: Vendor) -> tuple[tuple[Device, ...], ...]:
    """Return what a scheduler's list can mean here; nothing where it has none, or names what can't be seen.

    Its numbers are those of device files, counted from the first. These can be in another order than
    nvidia-smi's or rocm-smi's numbers, which it may mean as well where all of the host's GPUs can be seen.
    """
    devices = inventory.devices
    if not grant.gpus:
        return ()
    if not all(entry.isdecimal() for entry in grant.gpus):
        named = tuple(device for device in devices if device.uuid in grant.gpus)
        return (named,) if len(named) == len(grant.gpus) else ()
    first = _FIRST_FILE[vendor]
    numbers = {int(entry) for entry in grant.gpus}
    numbers = {number - first if number >= first else number for number in numbers}
    files = [gpu.minor if gpu.minor is UNKNOWN else gpu.minor - first for gpu in inventory]
    found = [tuple(gpu for gpu, file in zip(inventory, files, strict=True) if file in numbers)]
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
