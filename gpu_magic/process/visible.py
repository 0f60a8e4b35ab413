"""What frameworks see by the variables: CUDA's, which `mask` reads, and ROCm's. Writes them for a choice.

ROCR_VISIBLE_DEVICES comes first. ROCm's runtime reads it in hsa_init: numbers, and UUIDs or beginnings of
them, in any mixture; empty hides all GPUs. HIP_VISIBLE_DEVICES then counts among what that has left; where it
is not set, or empty, HIP reads CUDA_VISIBLE_DEVICES in its place, so that an empty value hides nothing and -1
hides all. An entry that names no GPU ends a list. Sources: ROCm documentation, "GPU isolation techniques";
ROCR-Runtime, amd_filter_device.cpp; clr, rocclr/device/rocm/rocdevice.cpp, `Device::init`.

PyTorch for ROCm counts by a parser of its own (torch 2.13, torch/cuda/__init__.py,
`_parse_visible_devices` and `_device_count_amdsmi`), which differs: it takes an empty HIP_VISIBLE_DEVICES
for no GPU, and a number that is named twice for none. Where the two disagree, what a program sees depends on
which of them it asks, so nothing is said of it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_magic.devices.model import Gpu, MigInstance
from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.errors import ChoiceError
from gpu_magic.process.mask import FASTEST, HIP, MASK, ORDER, PCI, ROCR, Reading, read, write
from gpu_magic.text import counted, listed, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.devices.model import Device, Vendor
    from gpu_magic.process.mask import Kind, Variables

__all__ = [
    "device_order",
    "hide",
    "in_force",
    "in_order",
    "read_hip",
    "read_visible",
    "seen_vendor",
    "show",
    "together",
]
HIDDEN = "-1"  # an empty value would leave it to CUDA_VISIBLE_DEVICES

_LONGEST_SHOWN = 120
_SHORTEST_UUID = 5  # ROCR_VISIBLE_DEVICES: "GPU-" and a digit


def read_visible(variables: Variables, inventory: Inventory) -> Reading:
    """Return what frameworks see; on a machine with GPUs of both vendors, NVIDIA's and then AMD's."""
    if "amd" not in inventory.vendors:
        return read(variables.mask, inventory, variables.order)
    amd = read_hip(variables, inventory.of_vendor("amd"))
    if inventory.vendors == ("amd",):
        return amd
    return join(read(variables.mask, inventory.of_vendor("nvidia"), variables.order), amd)


def together(
    one: tuple[Device, ...] | Unknown, other: tuple[Device, ...] | Unknown
) -> tuple[Device, ...] | Unknown:
    """Return the devices of both; UNKNOWN where one is."""
    return UNKNOWN if one is UNKNOWN or other is UNKNOWN else (*one, *other)


def join(one: Reading, other: Reading) -> Reading:
    """Return what two readings mean together; it is UNKNOWN where that of one is."""
    names_all = one.names_all and other.names_all
    return replace(
        one,
        devices=together(one.devices, other.devices),
        notes=(*one.notes, *other.notes),
        names_all=names_all,
    )


def seen_vendor(variables: Variables, inventory: Inventory) -> Vendor:
    """Return whose GPUs `cuda:0`, `cuda:1` are: NVIDIA's, unless they are hidden or not there."""
    first, *others = inventory.vendors or ("nvidia",)
    if others and read(variables.mask, inventory.of_vendor(first), variables.order).devices == ():
        return others[0]
    return first


def in_force(variables: Variables, inventory: Inventory) -> dict[str, str]:
    """Return the variables that hide GPUs of this machine, by their names; those that are not set do not."""
    found = in_use(variables) if "amd" in inventory.vendors else {}
    if inventory.vendors != ("amd",) and variables.mask is not None:
        found = {MASK: variables.mask} | found
    return found


def in_use(variables: Variables) -> dict[str, str]:
    """Return those of the variables that have a say, by their names."""
    found = {ROCR: variables.rocr, HIP: variables.hip}
    if not variables.hip:
        found[MASK] = variables.mask
    return {name: value for name, value in found.items() if value is not None}


def read_hip(variables: Variables, inventory: Inventory) -> Reading:
    """Return what HIP sees of a machine's AMD GPUs, which are all that there is in the inventory."""
    name, mask = (HIP, variables.hip) if variables.hip else (MASK, variables.mask)
    kind: Kind = "unset" if not in_use(variables) else "uuid" if (mask or "").startswith("GPU-") else "index"
    # With ROCR_VISIBLE_DEVICES alone PyTorch does not look at CUDA_VISIBLE_DEVICES.
    is_hidden = mask == HIDDEN and (variables.hip is not None or variables.rocr is None)
    if is_hidden or variables.rocr == "":
        return Reading(kind, ())
    if inventory.problem:
        return Reading(kind, UNKNOWN)
    numbered = _numbered(inventory)
    if numbered is UNKNOWN:
        # A single GPU that is named by its UUID is known whatever the numbers are.
        gpus = _named_by_uuid(variables, inventory)
        return Reading(kind, UNKNOWN, (_why_unclear(inventory),)) if gpus is None else Reading(kind, gpus)
    left, notes = numbered, []
    if variables.rocr is not None:
        left = tuple(_filtered_by_rocr(variables.rocr, numbered))
        notes += _ended(ROCR, variables.rocr, len(left))
    seen = left
    if mask:
        seen = tuple(_filtered_by_hip(mask, left))
        notes += _ended(name, mask, len(seen))
    others = _count_of_pytorch(variables, inventory)
    if others is not UNKNOWN and others != len(seen):
        values = " and ".join(f"{name}={_shown(value)}" for name, value in in_use(variables).items())
        there = "refuses it" if others < 0 else f"reads {_number_of(others)}"
        note = f"{values}: PyTorch {there} and HIP {_number_of(len(seen))}, so what is seen is not known."
        return Reading(kind, UNKNOWN, (note,))
    return Reading(kind, seen, tuple(notes), names_all=len(seen) == len(inventory))


def write_hip(
    devices: Sequence[Gpu], inherited: Variables, inventory: Inventory, *, by: str | None
) -> dict[str, str | None]:
    """Return values for the variables that make HIP see these GPUs, in their order, and no others.

    Parameters
    ----------
    devices
        AMD's, in the order of `cuda:0`, `cuda:1`, …
    inherited
        What the process was given. ROCR_VISIBLE_DEVICES stays, unless it hides one of the GPUs.
    inventory
        The machine, with AMD's GPUs alone.
    by
        Write "index" or "uuid"; None: numbers, where HIP's are known.

    Raises
    ------
    ChoiceError
        Numbers are asked for, and HIP's are not known.

    """
    found: dict[str, str | None] = {}
    left = numbered = _numbered(inventory)
    if inherited.rocr is not None and numbered is not UNKNOWN:
        left = tuple(_filtered_by_rocr(inherited.rocr, numbered))
    if inherited.rocr is not None and (left is UNKNOWN or not set(_uuids(devices)) <= set(_uuids(left))):
        left, found[ROCR] = numbered, None
    if by == "index" and left is UNKNOWN:
        raise ChoiceError(f"{_why_unclear(inventory)} Omit by='index'.")
    if by == "uuid" or left is UNKNOWN:
        found[HIP] = ",".join(_uuids(devices))
    else:
        places = {uuid: str(place) for place, uuid in enumerate(_uuids(left))}
        found[HIP] = ",".join(places[uuid] for uuid in _uuids(devices))
    if inherited.mask is not None:  # launchers stop where the two contradict each other
        found[MASK] = None
    return found


def _numbered(inventory: Inventory) -> tuple[Gpu, ...] | Unknown:
    """Return the GPUs in the order of HIP's numbers; UNKNOWN where these are not known."""
    gpus = inventory.gpus
    if any(gpu.problem for gpu in gpus):
        return UNKNOWN
    if len(gpus) == 1:
        return gpus
    places = [(gpu.hip_id, gpu) for gpu in gpus if gpu.hip_id is not UNKNOWN]
    if sorted(place for place, _ in places) != list(range(len(gpus))):
        return UNKNOWN
    return tuple(gpu for _, gpu in sorted(places, key=lambda pair: pair[0]))


def _why_unclear(inventory: Inventory) -> str:
    if silent := [gpu.label for gpu in inventory if gpu.problem]:
        do = "does" if len(silent) == 1 else "do"
        return f"HIP's numbers can't be known while {listed(silent)} {do} not answer."
    return "AMD SMI does not give HIP's numbers of the GPUs, so which one a number means can't be known."


def _filtered_by_rocr(value: str, gpus: tuple[Gpu, ...]) -> Iterator[Gpu]:
    """Yield the GPUs that ROCR_VISIBLE_DEVICES leaves, in its order, up to an entry that ends the list."""
    seen: set[object] = set()
    for entry in value.split(",")[: len(gpus)]:
        gpu = _of_rocr(entry.strip().upper(), gpus)
        if gpu is None or gpu.uuid in seen:
            return
        seen.add(gpu.uuid)
        yield gpu


def _of_rocr(entry: str, gpus: tuple[Gpu, ...]) -> Gpu | None:
    if entry.startswith("G"):
        fits = [gpu for gpu in gpus if str(gpu.uuid).upper().startswith(entry)]
        return fits[0] if len(fits) == 1 and len(entry) >= _SHORTEST_UUID else None
    number = int(entry) if re.fullmatch(r"\+?[0-9]{1,4}", entry) else -1
    return gpus[number] if 0 <= number < len(gpus) else None


def _filtered_by_hip(value: str, gpus: tuple[Gpu, ...]) -> Iterator[Gpu]:
    """Yield the GPUs that HIP sees, each once, in its order, up to an entry that names none."""
    seen: set[object] = set()
    for entry in value.split(","):
        gpu = _of_hip(entry, gpus)
        if gpu is None:
            return
        if gpu.uuid not in seen:
            seen.add(gpu.uuid)
            yield gpu


def _of_hip(entry: str, gpus: tuple[Gpu, ...]) -> Gpu | None:
    if "GPU-" in entry:
        return next((gpu for gpu in gpus if entry in str(gpu.uuid)), None)
    is_number = re.fullmatch(r"0|[1-9][0-9]{0,3}", entry) and int(entry) < len(gpus)
    return gpus[int(entry)] if is_number else None


def _named_by_uuid(variables: Variables, inventory: Inventory) -> tuple[Gpu, ...] | None:
    """Return what is seen where every GPU is named by its whole UUID, and all of these answer; else None."""
    values = in_use(variables)
    by_uuid = {str(gpu.uuid): gpu for gpu in inventory if not gpu.problem}
    if len(values) != 1:
        return None
    (entries,) = (value.split(",") for value in values.values())
    is_clear = len(set(entries)) == len(entries) and all(entry in by_uuid for entry in entries)
    return tuple(by_uuid[entry] for entry in entries) if is_clear else None


def _count_of_pytorch(variables: Variables, inventory: Inventory) -> int | Unknown:
    """Return how many GPUs PyTorch counts; -1 where it refuses, UNKNOWN where that can't be told."""
    mask, _, hip, rocr = variables
    if rocr is not None:
        entries = len(rocr.split(","))
        if hip is None:
            return min(entries, len(inventory))
        if len(hip.split(",")) > entries:
            return -1
    found = read(mask if hip is None else hip, inventory, PCI).devices
    return UNKNOWN if found is UNKNOWN else len(found)


def _number_of(gpus: int) -> str:
    return counted(gpus, "GPU") if gpus else "no GPU"


def _ended(name: str, value: str, count: int) -> list[str]:
    """Return what is wrong with a list of which only the first entries count."""
    entries = value.split(",")
    if count >= len(entries) or value == HIDDEN:
        return []
    seen = f"only the first {count}" if count else "no GPU"
    why = "is not a GPU of this machine and ends the list"
    return [f"Entry {count + 1} of {name}={_shown(value)} {why}: HIP sees {seen}."]


def _shown(value: str) -> str:
    return shortened(value, _LONGEST_SHOWN) or "(empty)"


def _uuids(gpus: Sequence[Gpu]) -> list[str]:
    return [str(gpu.uuid) for gpu in gpus]


def hide(*vendors: Vendor) -> dict[str, str | None]:
    """Return the variables with which no GPU of these vendors is seen, and their values."""
    found: dict[str, str | None] = {MASK: "", ORDER: PCI} if "nvidia" in vendors else {}
    return found | ({HIP: HIDDEN} if "amd" in vendors else {})


def show(
    devices: tuple[Device, ...],
    order: str,
    inventory: Inventory,
    inherited: Variables,
    *,
    by: str | None,
    given: Kind,
) -> dict[str, str | None]:
    """Return the variables with which frameworks see these devices, which are of one vendor, and no others.

    Parameters
    ----------
    devices
        In the order of `cuda:0`, `cuda:1`, …
    order
        CUDA_DEVICE_ORDER, for NVIDIA's.
    inventory
        The machine: of the other vendor's GPUs, which are hidden.
    inherited, given
        What the process was given, and of which kind that is.
    by
        Write "index" or "uuid"; None: as the process was given it, where that says which these are.

    Raises
    ------
    ChoiceError
        Numbers are asked for, and can't name these devices.

    """
    amd = tuple(device for device in devices if isinstance(device, Gpu) and device.vendor == "amd")
    if not amd:
        others = [vendor for vendor in inventory.vendors if vendor != "nvidia"]
        mask = visible_devices(devices, order, inventory.of_vendor("nvidia"), by=by, given=given)
        return {MASK: mask, ORDER: order, **hide(*others)}
    found = write_hip(amd, inherited, inventory.of_vendor("amd"), by=by)
    return found | ({MASK: ""} if "nvidia" in inventory.vendors else {})


def device_order(asked: str | None, inherited: str | None) -> str:
    """Return CUDA_DEVICE_ORDER: as it is asked for, else as the process was given it, else nvidia-smi's."""
    if asked is None:
        return FASTEST if inherited == FASTEST else PCI
    return FASTEST if asked == "fastest" else PCI


def in_order(
    devices: tuple[Device, ...], order: str, inventory: Inventory
) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """Return devices that were named by no order in that of CUDA_DEVICE_ORDER, and a note where that fails.

    Parameters
    ----------
    devices
        In nvidia-smi's order, or by load.
    order
        CUDA_DEVICE_ORDER.
    inventory
        The machine.

    """
    if order != FASTEST or inventory.is_uniform or not devices[1:]:
        return devices, ()
    ranks = inventory.fastest_first
    if ranks is UNKNOWN:
        return devices, ("Which of these CUDA takes for the faster can't be known: name them in an order.",)
    return tuple(
        sorted(devices, key=lambda device: ranks.index(device) if isinstance(device, Gpu) else 0)
    ), ()


def visible_devices(
    devices: tuple[Device, ...], order: str, inventory: Inventory, *, by: str | None, given: Kind
) -> str:
    """Return a value of CUDA_VISIBLE_DEVICES that means these devices and no others.

    Parameters
    ----------
    devices
        The devices, in the order of `cuda:0`, `cuda:1`, …
    order
        CUDA_DEVICE_ORDER.
    inventory
        The machine.
    by
        Write "index" or "uuid"; None: as the process was given it, where that says which these are.
    given
        What the process was given.

    Raises
    ------
    ChoiceError
        Numbers are asked for, and can't name these devices.

    """
    has_mig = any(isinstance(device, MigInstance) for device in devices)
    # CUDA's numbers can differ from nvidia-smi's where it sorts by speed, or leaves out a GPU that is lost.
    is_sorted = order == FASTEST and not inventory.is_uniform
    # How CUDA numbers GPUs beside split ones is not documented well enough to promise anything by it.
    numbers_fail = is_sorted or any(gpu.problem or gpu.is_split for gpu in inventory)
    if by == "index" and has_mig:
        raise ChoiceError("A MIG instance has no number in CUDA_VISIBLE_DEVICES: omit by='index'.")
    if by == "index" and numbers_fail:
        why = "with FASTEST_FIRST" if is_sorted else "while a GPU does not answer or is split by MIG"
        raise ChoiceError(f"CUDA's numbers are not known {why} on this machine: omit by='index'.")
    by_uuid = by == "uuid" or (by is None and (given in ("uuid", "mig") or has_mig or numbers_fail))
    return write(devices, by_uuid=by_uuid)
