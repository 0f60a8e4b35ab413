"""The GPUs that frameworks see with CUDA's variables (see `mask`) and ROCm's, and the values for a choice.

ROCR_VISIBLE_DEVICES comes first. ROCm's runtime reads it in hsa_init: numbers, and UUIDs or starts of UUIDs,
in any mixture. An empty value hides all GPUs. HIP_VISIBLE_DEVICES then counts among the remaining GPUs. If
HIP_VISIBLE_DEVICES is not set, or empty, HIP reads CUDA_VISIBLE_DEVICES instead, so an empty value hides
nothing, and -1 hides all. An entry that names no GPU ends a list. Sources: ROCm documentation, "GPU isolation
techniques"; ROCR-Runtime, amd_filter_device.cpp; clr, rocclr/device/rocm/rocdevice.cpp, `Device::init`.

PyTorch for ROCm counts with another parser (torch 2.13, torch/cuda/__init__.py, `_parse_visible_devices` and
`_device_count_amdsmi`), which differs: it reads an empty HIP_VISIBLE_DEVICES, and a list with a repeated
number, as no GPU. A note names the difference. The visible GPUs are those that HIP sees.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpu_magic.devices.model import UNKNOWN, Gpu, MigInstance, Unknown
from gpu_magic.errors import ChoiceError
from gpu_magic.process.mask import (
    FASTEST,
    HIP,
    MASK,
    ORDER,
    PCI,
    ROCR,
    Flaw,
    Note,
    Reading,
    Variables,
    read,
    write,
)
from gpu_magic.text import counted, listed, shortened

if TYPE_CHECKING:
    from gpu_magic.devices.model import Device, Inventory
    from gpu_magic.process.mask import Variables

__all__ = ["hide", "hide_others", "in_force", "in_order", "read_visible", "show", "why_no_numbers"]

_HIDDEN = "-1"  # with an empty value, HIP would read CUDA_VISIBLE_DEVICES
_SHORTEST_UUID = 5  # ROCR_VISIBLE_DEVICES: "GPU-" and a digit


def read_visible(variables: Variables, inventory: Inventory) -> Reading:
    """Return what CUDA, or HIP, sees."""
    if inventory.vendor == "amd":
        return _read_hip(variables, inventory)
    return read(variables.mask, inventory, variables.order)


def in_force(variables: Variables, inventory: Inventory) -> dict[str, str]:
    """Return the variables that are set and can hide GPUs of this machine, with their values."""
    found = {MASK: variables.mask}
    if inventory.vendor == "amd":
        found = {ROCR: variables.rocr, HIP: variables.hip} | ({} if variables.hip else found)
    return {name: value for name, value in found.items() if value is not None}


def _read_hip(variables: Variables, inventory: Inventory) -> Reading:
    name, mask = (HIP, variables.hip) if variables.hip else (MASK, variables.mask)
    # If only ROCR_VISIBLE_DEVICES is set, PyTorch does not read CUDA_VISIBLE_DEVICES, which a note tells.
    is_hidden = mask == _HIDDEN and (variables.hip is not None or variables.rocr is None)
    if is_hidden or variables.rocr == "":
        return Reading(())
    if inventory.problem:
        return Reading(UNKNOWN)
    values, seen, notes = in_force(variables, inventory), _numbered(inventory), list[Note]()
    if seen is UNKNOWN:
        # GPUs that answer and are named by complete UUIDs are known without HIP's numbers.
        there = {str(gpu.uuid): gpu for gpu in inventory if not gpu.problem}
        entries = next(iter(values.values()), "").split(",")
        if len(values) == 1 and len(set(entries)) == len(entries) and set(entries) <= there.keys():
            return Reading(tuple(there[entry] for entry in entries))
        return Reading(UNKNOWN, (_why_unclear(inventory),))
    if variables.rocr is not None:
        seen = _left_by_rocr(variables.rocr, seen)
        notes += _ended(ROCR, variables.rocr, len(seen))
    if mask:
        seen = _left_by_hip(mask, seen)
        notes += _ended(name, mask, len(seen))
    others = _count_of_pytorch(variables, inventory)
    if others is not UNKNOWN and others != len(seen):
        shown = " and ".join(f"{name}={_shown(value)}" for name, value in values.items())
        theirs = "refuses it" if others < 0 else f"reads {_count(others)}"
        notes.append(Note(f"{shown}: HIP reads {_count(len(seen))}, but PyTorch {theirs}."))
    return Reading(seen, tuple(notes), names_all=len(seen) == len(inventory))


def _numbered(inventory: Inventory) -> tuple[Gpu, ...] | Unknown:
    """Return the GPUs in the order of HIP's numbers. UNKNOWN if the numbers are unknown."""
    gpus = inventory.gpus
    if any(gpu.problem for gpu in gpus):
        return UNKNOWN
    places = {gpu.hip_id: gpu for gpu in gpus} if gpus[1:] else dict(enumerate(gpus))
    is_known = places.keys() == set(range(len(gpus)))
    return tuple(places[place] for place in range(len(gpus))) if is_known else UNKNOWN


def _why_unclear(inventory: Inventory) -> Note:
    if silent := [gpu.label for gpu in inventory if gpu.problem]:
        do = "do" if silent[1:] else "does"
        return Note(f"{listed(silent)} {do} not answer, so HIP's numbers are unknown.", Flaw.SILENT)
    return Note("AMD SMI does not report HIP's numbers, so which GPU a number means is unknown.")


def _left_by_rocr(value: str, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Return the GPUs that ROCR_VISIBLE_DEVICES leaves, in its order, up to the first invalid entry."""
    left: list[Gpu] = []
    for entry in map(str.upper, map(str.strip, value.split(",")[: len(gpus)])):
        if entry.startswith("G"):
            fits = [gpu for gpu in gpus if str(gpu.uuid).upper().startswith(entry)]
            fits *= len(entry) >= _SHORTEST_UUID
        else:
            is_number = re.fullmatch(r"\+?[0-9]{1,4}", entry)
            fits = list(gpus[int(entry) : int(entry) + 1] if is_number else ())
        if len(fits) != 1 or fits[0] in left:
            break
        left += fits
    return tuple(left)


def _left_by_hip(value: str, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Return the GPUs that HIP sees, each once, in the order of the value, up to the first invalid entry."""
    seen: dict[Gpu, None] = {}
    for entry in value.split(","):
        if "GPU-" in entry:
            gpu = next((gpu for gpu in gpus if entry in str(gpu.uuid)), None)
        else:
            is_number = re.fullmatch(r"0|[1-9][0-9]{0,3}", entry) and int(entry) < len(gpus)
            gpu = gpus[int(entry)] if is_number else None
        if gpu is None:
            break
        seen[gpu] = None
    return tuple(seen)


def _count_of_pytorch(variables: Variables, inventory: Inventory) -> int | Unknown:
    """Return how many GPUs PyTorch counts: -1 if it refuses the variables, UNKNOWN if unclear."""
    mask, _, hip, rocr = variables
    if rocr is not None:
        entries = len(rocr.split(","))
        if hip is None:
            return min(entries, len(inventory))
        if len(hip.split(",")) > entries:
            return -1
    found = read(mask if hip is None else hip, inventory, PCI).devices
    return UNKNOWN if found is UNKNOWN else len(found)


def _count(gpus: int) -> str:
    return counted(gpus, "GPU") if gpus else "no GPU"


def _ended(name: str, value: str, count: int) -> list[Note]:
    """Return a note if an entry ends a list early, else nothing."""
    if count >= len(value.split(",")) or value == _HIDDEN:
        return []
    seen = f"only the first {count}" if count else "no GPU"
    why = "is not a GPU of this machine"
    return [Note(f"Entry {count + 1} of {name}={_shown(value)} {why}. HIP stops there and sees {seen}.")]


def _shown(value: str) -> str:
    return shortened(value, 120) or "(empty)"


def hide(inventory: Inventory) -> dict[str, str | None]:
    """Return the variables that hide all GPUs of the machine, and their values."""
    found: dict[str, str | None] = {HIP: _HIDDEN} if inventory.vendor == "amd" else {MASK: "", ORDER: PCI}
    return found | hide_others(inventory)


def hide_others(inventory: Inventory) -> dict[str, str | None]:
    """Return the variable that hides the GPUs of the other vendor, if the machine has such GPUs.

    HIP reads CUDA_VISIBLE_DEVICES, so a framework for ROCm would use an AMD GPU with the number of NVIDIA's.
    """
    if inventory.others is None:
        return {}
    return {HIP: _HIDDEN} if inventory.others.vendor == "amd" else {MASK: ""}


def show(
    devices: tuple[Device, ...],
    order: str,
    inventory: Inventory,
    inherited: Variables,
    *,
    by: str | None,
    by_uuid: bool = False,
) -> dict[str, str | None]:
    """Return the variables with which frameworks see exactly these devices.

    `by` tells how to name the devices. It raises ChoiceError if numbers cannot name them. Without `by`,
    NVIDIA's are named by number if possible, unless `by_uuid`, and AMD's if HIP's numbers are known.
    """
    if inventory.vendor == "amd":
        return _show_hip(devices, inherited, inventory, by) | hide_others(inventory)
    has_mig = any(isinstance(device, MigInstance) for device in devices)
    why = why_no_numbers(order, inventory)
    if by == "index" and has_mig:
        raise ChoiceError("A MIG instance has no number in CUDA_VISIBLE_DEVICES. Omit by='index'.")
    if by == "index" and why:
        raise ChoiceError(f"{why} Omit by='index'.")
    must_be_uuid = by == "uuid" or (by is None and (has_mig or why != ""))
    if must_be_uuid:
        _check_uuids(devices, by, why)
    has_uuids = all(device.uuid is not UNKNOWN for device in devices)
    by_uuid = must_be_uuid or (by is None and by_uuid and has_uuids)
    return {MASK: write(devices, by_uuid=by_uuid), ORDER: order, **hide_others(inventory)}


def _show_hip(
    devices: tuple[Device, ...], inherited: Variables, inventory: Inventory, by: str | None
) -> dict[str, str | None]:
    """Return the variables that make only these AMD GPUs visible.

    ROCR_VISIBLE_DEVICES stays, unless it hides one of them.
    """
    found: dict[str, str | None] = {}
    left = numbered = _numbered(inventory)
    if inherited.rocr is not None:
        if numbered is not UNKNOWN:
            left = _left_by_rocr(inherited.rocr, numbered)
        if left is UNKNOWN or not set(devices) <= set(left):
            left, found[ROCR] = numbered, None
    if by == "index" and left is UNKNOWN:
        raise ChoiceError(f"{_why_unclear(inventory)} Omit by='index'.")
    if by == "uuid" or left is UNKNOWN:
        _check_uuids(devices, by, str(_why_unclear(inventory)) if left is UNKNOWN else "")
        found[HIP] = write(devices, by_uuid=True)
    else:
        numbers = [str(left.index(device)) for device in devices if isinstance(device, Gpu)]
        found[HIP] = ",".join(numbers)
    if inherited.mask is not None:  # launchers stop if it contradicts HIP_VISIBLE_DEVICES
        found[MASK] = None
    return found


def why_no_numbers(order: str, inventory: Inventory) -> str:
    """Return why numbers cannot name GPUs, as a sentence. Empty if they can.

    CUDA's numbers can differ from nvidia-smi's if CUDA sorts by speed or leaves out a lost GPU. How CUDA
    numbers GPUs if one is split is not documented well enough to rely on it.
    """
    if inventory.vendor == "amd":
        return str(_why_unclear(inventory)) if _numbered(inventory) is UNKNOWN else ""
    if order == FASTEST and not inventory.is_uniform:
        return "CUDA's numbers are unknown with FASTEST_FIRST."
    if any(gpu.problem or gpu.is_split for gpu in inventory):
        return "CUDA's numbers are unknown while a GPU does not answer or is split by MIG."
    return ""


def _check_uuids(devices: tuple[Device, ...], by: str | None, why_no_numbers: str) -> None:
    """Raise ChoiceError if a device has no UUID to write."""
    if unnamed := [device.label for device in devices if device.uuid is UNKNOWN]:
        way = "Omit by='uuid'." if by == "uuid" and not why_no_numbers else "Choose other GPUs."
        has = "have no UUIDs" if unnamed[1:] else "has no UUID"
        raise ChoiceError(" ".join(filter(None, (f"{listed(unnamed)} {has}.", why_no_numbers, way))))


def in_order(
    devices: tuple[Device, ...], order: str, inventory: Inventory
) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """Sort devices without a given order by CUDA_DEVICE_ORDER. Return also a note if that is impossible."""
    if order != FASTEST or inventory.is_uniform or not devices[1:]:
        return devices, ()
    ranks = inventory.fastest_first
    if ranks is UNKNOWN:
        return devices, ("Which of these GPUs CUDA ranks first is unknown. Name them in the order you want.",)
    return tuple(sorted(devices, key=lambda one: ranks.index(one) if isinstance(one, Gpu) else 0)), ()
