"""The variables that say which GPUs a process sees. CUDA's, as the driver reads them: read, write, explain.

The driver reads CUDA_VISIBLE_DEVICES once, in cuInit, with CUDA_DEVICE_ORDER. Source: CUDA programming guide,
"CUDA environment variables"; details (duplicates, what strtoul accepts, what fixes the kind) as in PyTorch
2.13's `torch.cuda._parse_visible_devices`, which copies them from the driver. Our tests compare with that.

MIG instances: source, MIG user guide (R580), "CUDA device enumeration". With CUDA 11 and CUDA 12 "only
enumeration of a single MIG instance is supported", and no GPU without MIG beside it. It does not say so of
CUDA 13. But "only single MIG instance enumeration is supported" still stands in the CUDA 13 programming
guide, while processes are reported to count several (nanoporetech/dorado #1586).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from gpu_magic.devices.model import Device, Gpu, parts
from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.devices.model import MigInstance, Vendor

__all__ = [
    "FASTEST",
    "HIP",
    "MASK",
    "NAMES",
    "ORDER",
    "PCI",
    "ROCR",
    "By",
    "Kind",
    "Reading",
    "Variables",
    "fitting_instances",
    "mig_limit",
    "names_of",
    "read",
    "takes_one",
    "write",
]


class Variables(NamedTuple):
    """Their values; None: not set.

    Parameters
    ----------
    mask, order
        CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, which CUDA's driver reads once, in cuInit.
    hip, rocr
        HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES, which ROCm reads once: see `process.visible`.

    """

    mask: str | None = None
    order: str | None = None
    hip: str | None = None
    rocr: str | None = None

    @property
    def name_gpus(self) -> bool:
        """Whether one of them says which GPUs are seen: a choice, a scheduler or somebody else has set it."""
        return any(value is not None for value in self._replace(order=None))

    def named(self, names: tuple[str, ...]) -> dict[str, str | None]:
        """Return some of them, by their names."""
        values = dict(zip(NAMES, self, strict=True))
        return {name: values[name] for name in names}


NAMES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
MASK, ORDER, HIP, ROCR = NAMES

# What a choice sets is the first of each.
_OF_VENDOR: dict[Vendor, tuple[str, ...]] = {"nvidia": (MASK, ORDER), "amd": (HIP, ROCR, MASK)}


def names_of(*vendors: Vendor) -> tuple[str, ...]:
    """Return the variables that say which GPUs of these vendors are seen; the first is what a choice sets."""
    return tuple(dict.fromkeys(name for vendor in vendors for name in _OF_VENDOR[vendor]))


_FIRST_WITHOUT_LIMIT = 13  # CUDA's version


def takes_one(inventory: Inventory) -> bool:
    """Return whether CUDA is known to see one MIG instance, where several are named."""
    version = inventory.cuda_version
    return version is not UNKNOWN and int(version.partition(".")[0]) < _FIRST_WITHOUT_LIMIT


def mig_limit(inventory: Inventory) -> str:
    """Return how many MIG instances one process can use, as far as NVIDIA says it, as a clause."""
    if takes_one(inventory):
        return f"CUDA {inventory.cuda_version} lets one process use one MIG instance and no other GPU"
    return "One process can use one MIG instance and no other GPU, as far as NVIDIA documents it"


def fitting_instances(name: str, inventory: Inventory) -> list[MigInstance]:
    """Return the MIG instances that a name fits: the beginning of a UUID, or `MIG-GPU-8f3a…/1/0`.

    Drivers before R470 have the second form alone: the UUID of the GPU, and the numbers of the GPU instance
    and of the compute instance, `GI ID` and `CI ID` of nvidia-smi.
    """
    match = re.fullmatch(r"MIG-(GPU-[^/]*)/([0-9]{1,4})/([0-9]{1,4})", name)
    if not match:
        return [instance for gpu in inventory for instance in gpu.mig if instance.uuid.startswith(name)]
    ids = int(match[2]), int(match[3])
    gpus = [gpu for gpu in inventory if gpu.uuid is not UNKNOWN and gpu.uuid.startswith(match[1])]
    return [instance for gpu in gpus for instance in gpu.mig if instance.ids == ids]


T = TypeVar("T")

By = Literal["index", "uuid"]
Kind = Literal["unset", "index", "uuid", "mig"]
PCI, FASTEST = "PCI_BUS_ID", "FASTEST_FIRST"

# More digits than any number that strtoul can return; int() refuses thousands of them.
_LONGEST_NUMBER = 20
_LONGEST_SHOWN = 120

# Ways in which people write "no GPU" on purpose; they are not explained as mistakes.
_MEANT_AS_NONE = {"", "-1", "none", "NoDevFiles", "void"}


@dataclass(frozen=True, slots=True)
class Reading:
    """What a mask means on a machine.

    Parameters
    ----------
    kind
        Whether it is a list of numbers, of GPU UUIDs or of MIG UUIDs. Its first entry decides.
    devices
        What CUDA sees, in the order of `cuda:0`, `cuda:1`, …; UNKNOWN where that can't be known.
    notes
        What is wrong with the mask, a sentence each; also why `devices` is UNKNOWN.
    names_all
        Whether it is a list of numbers that names every GPU of the machine, in any order.
    others
        All MIG instances that it names, where it names several.

    """

    kind: Kind
    devices: tuple[Device, ...] | Unknown
    notes: tuple[str, ...] = ()
    names_all: bool = False
    others: tuple[Device, ...] = ()

    @property
    def named(self) -> tuple[Device, ...] | Unknown:
        """The devices that it names, whether or not CUDA sees all of them."""
        return self.others or self.devices


def read(mask: str | None, inventory: Inventory, order: str | None = None) -> Reading:
    """Return what CUDA would see.

    Parameters
    ----------
    mask
        CUDA_VISIBLE_DEVICES; None where it is not set.
    inventory
        The machine.
    order
        CUDA_DEVICE_ORDER; None where it is not set, which means FASTEST_FIRST.

    """
    if inventory.problem:  # nothing is known of this machine's GPUs, so nothing is said of them
        is_empty = mask is not None and mask.strip() in _MEANT_AS_NONE
        return Reading(_kind(mask), () if is_empty else UNKNOWN)
    if mask is None:
        return _of_numbers("unset", tuple(range(len(inventory))), inventory, order, ())
    if mask.startswith("GPU-"):
        return _of_uuids(mask, inventory)
    if mask.startswith("MIG-"):
        return _of_mig_uuids(mask, inventory)
    numbers, notes = _valid_numbers(mask, max(len(inventory), _instances_and_gpus(inventory)))
    return _of_numbers("index", numbers, inventory, order, notes)


def write(devices: Sequence[Device], *, by_uuid: bool) -> str:
    """Return the mask that makes these devices `cuda:0`, `cuda:1` and so on.

    Numbers mean these GPUs only together with CUDA_DEVICE_ORDER=PCI_BUS_ID; a MIG instance has no number.
    """
    names = [
        str(device.index) if isinstance(device, Gpu) and not by_uuid else str(device.uuid)
        for device in devices
    ]
    return ",".join(names)


def _kind(mask: str | None) -> Kind:
    if mask is None:
        return "unset"
    return "uuid" if mask.startswith("GPU-") else "mig" if mask.startswith("MIG-") else "index"


# Lists of numbers


def _valid_numbers(mask: str, count: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the numbers up to the first entry that is not valid, and what is wrong with the mask.

    A number that is named twice makes the whole list empty, unless an entry without a number precedes it.
    """
    entries = mask.split(",")
    numbers = list(takewhile(lambda number: number >= 0, map(_number, entries)))
    repeated = _first_repeated(numbers)
    if repeated is not None:
        return (), (_named_twice(mask, repeated),)
    valid = list(takewhile(lambda number: number < count, numbers))
    return tuple(valid), tuple(_explain_numbers(mask, entries, valid, count))


def _number(entry: str) -> int:
    """Return the number at the start of an entry, as strtoul reads it; -1 where there is none."""
    match = re.match(r"([+-]?)0*([0-9]+)", entry.strip(" \t\n\r\v\f"))
    return int(match[1] + match[2][:_LONGEST_NUMBER]) if match else -1


def _explain_numbers(mask: str, entries: list[str], valid: list[int], count: int) -> list[str]:
    """Return what is wrong with a list of numbers, of which the first ones are valid."""
    if '"' in mask or "'" in mask:
        bare = shortened(mask.replace('"', "").replace("'", ""), _LONGEST_SHOWN)
        why = f"The quotes in {_shown(mask)} are part of the value, so CUDA does not read what was meant."
        return [f"{why} %env takes no quotes: %env CUDA_VISIBLE_DEVICES={bare}"]
    if len(valid) < len(entries):
        if not valid and mask.strip() in _MEANT_AS_NONE:
            return []
        entry = entries[len(valid)].strip()
        if not entry:
            why = "is empty"
        elif re.match(r"\+?[0-9]", entry):
            why = f"is not a GPU of this machine (it has {count})"
        elif re.match(r"-[0-9]", entry):
            why = "names no GPU"
        else:
            why = "is not a number"
        seen = f"only {', '.join(map(str, valid))}" if valid else "no GPU"
        return [_ends_the_list(mask, len(valid), why, seen)]
    lenient = [entry for entry in entries if not re.fullmatch(r"\s*[+-]?[0-9]+\s*", entry)]
    if lenient:
        return [
            f"CUDA reads only the number at the start of {shortened(lenient[0], 20)!r} in {_shown(mask)}."
        ]
    return []


def _of_numbers(
    kind: Kind, numbers: tuple[int, ...], inventory: Inventory, order: str | None, notes: tuple[str, ...]
) -> Reading:
    """Return the GPUs that CUDA gives these numbers, where that can be known."""
    if not numbers:
        return Reading(kind, (), notes)
    names_all = len(numbers) in (len(inventory), _instances_and_gpus(inventory))
    why = _why_numbers_are_unclear(kind, numbers, inventory, order)
    if why:
        return Reading(kind, UNKNOWN, (*notes, why), names_all)
    return Reading(kind, tuple(inventory[number] for number in numbers), notes, names_all)


def _instances_and_gpus(inventory: Inventory) -> int:
    """Return how many devices CUDA can count where GPUs are split, in an order that is not documented."""
    is_split = any(gpu.is_split for gpu in inventory) and not any(gpu.problem for gpu in inventory)
    return len(parts(inventory.devices)) if is_split else len(inventory)


def _why_numbers_are_unclear(
    kind: Kind, numbers: tuple[int, ...], inventory: Inventory, order: str | None
) -> str:
    """Return why CUDA's numbers may not be nvidia-smi's; empty where they are the same."""
    is_set = "not set" if kind == "unset" else "a list of numbers"
    setting = f"CUDA_VISIBLE_DEVICES is {is_set}"
    silent = [gpu.index for gpu in inventory if gpu.problem]
    has_order = order == PCI or inventory.is_uniform
    if not has_order and (inventory.is_mixed or not silent):
        why = "they differ" if inventory.is_mixed else "it is not known whether they are alike"
        return (
            f"{setting} and CUDA_DEVICE_ORDER is {shortened(order or 'not set', 20)}, so CUDA may count this "
            f"machine's GPUs in another order than nvidia-smi, as {why}: which is cuda:0 can't be known"
            f"{' until you choose' if kind == 'unset' else ''}."
        )
    split = [gpu.index for gpu in inventory if gpu.is_split]
    if split:
        verb = "is" if len(split) == 1 else "are"
        return f"{setting}, so what CUDA sees can't be known from here: {_gpus(split)} {verb} split by MIG."
    if silent and (max(numbers) >= silent[0] or not has_order):
        # CUDA may leave out a GPU that fell off the bus, and NVML still counts it. Which way it goes is not
        # documented, so nothing is said of the numbers after it.
        return f"{setting}, so what CUDA sees can't be known while {_gpus(silent)} {_do(silent)} not answer."
    return ""


# Lists of UUIDs


def _of_uuids(mask: str, inventory: Inventory) -> Reading:
    """Return the GPUs of a list of UUIDs, or of beginnings of UUIDs.

    The first entry that is not valid ends the list. A GPU that is named twice makes it empty.
    """
    entries = mask.split(",")
    prefixes = list(takewhile(lambda entry: entry.startswith("GPU-"), entries))
    repeated = _first_repeated(prefixes)  # also after an entry that fits no GPU
    if repeated is not None:
        return Reading("uuid", (), (_named_twice(mask, repeated),))
    fits = [[gpu for gpu in inventory if _begins(gpu, prefix)] for prefix in prefixes]
    found = [gpus[0] for gpus in takewhile(lambda gpus: len(gpus) == 1, fits)]
    repeated_gpu = _first_repeated(found)
    if repeated_gpu is not None:
        second = [position for position, gpu in enumerate(found) if gpu == repeated_gpu][1]
        return Reading("uuid", (), (_named_twice(mask, entries[second]),))
    notes: tuple[str, ...] = ()
    if len(found) < len(entries):
        if len(found) == len(prefixes):
            why = "is not a GPU's UUID"
        else:
            number = len(fits[len(found)])
            why = f"fits {number} GPUs" if number else "fits no GPU of this machine"
        seen = f"only {_gpus([gpu.index for gpu in found])}" if found else "no GPU"
        notes = (_ends_the_list(mask, len(found), why, seen),)
    if why := _why_uuids_are_unclear(found):
        return Reading("uuid", UNKNOWN, (*notes, why))
    return Reading("uuid", tuple(found), notes)


def _begins(gpu: Gpu, prefix: str) -> bool:
    return gpu.uuid is not UNKNOWN and gpu.uuid.startswith(prefix)


def _why_uuids_are_unclear(found: list[Gpu]) -> str:
    """Return why CUDA may not see these GPUs, though they are named; empty where it does."""
    split = [gpu.index for gpu in found if gpu.is_split]
    if split:
        return f"CUDA_VISIBLE_DEVICES names {_gpus(split)}, split by MIG: CUDA picks one instance itself."
    silent = [gpu.index for gpu in found if gpu.problem]
    if silent:
        return f"{_gpus(silent)} in CUDA_VISIBLE_DEVICES {_do(silent)} not answer: what CUDA sees is unknown."
    return ""


def _of_mig_uuids(mask: str, inventory: Inventory) -> Reading:
    """Return the first MIG instance that is named, as one process can use one; see `takes_one`.

    An instance that is named twice makes the list empty.
    """
    entries = mask.split(",")
    names = list(takewhile(lambda entry: entry.startswith("MIG-"), entries))
    repeated = _first_repeated(names)
    if repeated is not None:
        return Reading("mig", (), (_named_twice(mask, repeated),))
    fits = [fitting_instances(name, inventory) for name in names]
    if len(fits[0]) != 1:
        why = f"fits {len(fits[0])} MIG instances" if fits[0] else "fits no MIG instance of this machine"
        note = f"{shortened(names[0], _LONGEST_SHOWN)} in CUDA_VISIBLE_DEVICES {why}: CUDA sees no GPU."
        return Reading("mig", (), (note,))
    first = fits[0][0]
    if not entries[1:]:
        return Reading("mig", (first,))
    others = tuple(found[0] for found in takewhile(lambda found: len(found) == 1, fits))
    if not takes_one(inventory):
        note = "CUDA_VISIBLE_DEVICES names several MIG instances: how many CUDA 13 takes is not known."
        return Reading("mig", UNKNOWN if others[1:] else (first,), (note,), others=others)
    note = f"{mig_limit(inventory)}: CUDA sees {first.uuid} alone."
    return Reading("mig", (first,), (note,), others=others)


# What the notes have in common


def _first_repeated(items: Iterable[T]) -> T | None:
    seen: set[T] = set()
    for item in items:
        if item in seen:
            return item
        seen.add(item)
    return None


def _named_twice(mask: str, entry: int | str) -> str:
    shown = shortened(str(entry), _LONGEST_SHOWN)
    return f"{_shown(mask)} names {shown} twice: CUDA then sees no GPU at all."


def _ends_the_list(mask: str, position: int, why: str, seen: str) -> str:
    return f"Entry {position + 1} of {_shown(mask)} {why} and ends the list: CUDA sees {seen}."


def _shown(mask: str) -> str:
    return f"CUDA_VISIBLE_DEVICES={shortened(mask, _LONGEST_SHOWN)}"


def _gpus(indices: Sequence[int]) -> str:
    """Return `GPU 1` or `GPUs 0 and 2`."""
    if len(indices) == 1:
        return f"GPU {indices[0]}"
    return f"GPUs {', '.join(map(str, indices[:-1]))} and {indices[-1]}"


def _do(indices: Sequence[int]) -> str:
    return "does" if len(indices) == 1 else "do"
