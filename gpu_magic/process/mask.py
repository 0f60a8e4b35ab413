"""The variables that decide which GPUs a process sees. Reads CUDA's as the driver does, and writes them.

The driver reads CUDA_VISIBLE_DEVICES once, in cuInit, with CUDA_DEVICE_ORDER. Source: CUDA programming guide,
"CUDA environment variables"; details (duplicates, what strtoul accepts, what fixes the kind) as in PyTorch
2.13's `torch.cuda._parse_visible_devices`, which copies them from the driver. Our tests compare with that.

MIG instances: source, MIG user guide (R580), "CUDA device enumeration". With CUDA 11 and CUDA 12, "only
enumeration of a single MIG instance is supported", and no GPU without MIG beside it. The guide has no such
limit for CUDA 13. The CUDA 13 programming guide still says "only single MIG instance enumeration is
supported", but processes are reported to count several (nanoporetech/dorado #1586).
"""

from __future__ import annotations

import enum
import re
from itertools import takewhile
from typing import TYPE_CHECKING, Literal, NamedTuple

from gpu_magic.devices.model import UNKNOWN, Device, Gpu, Unknown, parts, with_instances
from gpu_magic.text import listed, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.devices.model import Inventory, Vendor

__all__ = [
    "FASTEST",
    "HIP",
    "MASK",
    "NAMES",
    "ORDER",
    "PCI",
    "ROCR",
    "By",
    "Flaw",
    "Note",
    "Reading",
    "Variables",
    "fitting",
    "mig_limit",
    "names_of",
    "read",
    "takes_one",
    "write",
]

By = Literal["index", "uuid"]
PCI, FASTEST = "PCI_BUS_ID", "FASTEST_FIRST"
NAMES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
MASK, ORDER, HIP, ROCR = NAMES
_OF_VENDOR: dict[Vendor, tuple[str, ...]] = {"nvidia": (MASK, ORDER), "amd": (HIP, ROCR, MASK)}

_CUDA_WITHOUT_LIMIT = 13
# More digits than any number that strtoul can return. int() refuses thousands of digits.
_LONGEST_NUMBER = 20
_LONGEST_SHOWN = 120
# Values with which users mean "no GPU". They are not reported as mistakes.
_MEANT_AS_NONE = {"", "-1", "none", "NoDevFiles", "void"}


class Variables(NamedTuple):
    """The values of the variables of `NAMES`; None: not set."""

    mask: str | None = None
    order: str | None = None
    hip: str | None = None
    rocr: str | None = None

    @property
    def name_gpus(self) -> bool:
        """Whether a variable that can hide GPUs is set, for example by a choice or a scheduler."""
        return any(value is not None for value in self._replace(order=None))

    def named(self, names: tuple[str, ...]) -> dict[str, str | None]:
        """Return the values of some variables by name."""
        return {name: self[NAMES.index(name)] for name in names}


def names_of(vendor: Vendor) -> tuple[str, ...]:
    """Return the variables that decide which GPUs of a vendor are visible. A choice sets the first."""
    return _OF_VENDOR[vendor]


def takes_one(inventory: Inventory) -> bool:
    """Return whether CUDA is known to see only one MIG instance if several are named."""
    version = inventory.cuda_version
    return version is not UNKNOWN and int(version.partition(".")[0]) < _CUDA_WITHOUT_LIMIT


def mig_limit(inventory: Inventory) -> str:
    """Return how many MIG instances one process can use according to NVIDIA, as a clause."""
    if takes_one(inventory):
        return f"CUDA {inventory.cuda_version} lets one process use one MIG instance and no other GPU"
    return "According to NVIDIA, a process can use one MIG instance and no other GPU"


def fitting(name: str, inventory: Inventory) -> list[Device]:
    """Return the devices that match a name: the start of a UUID, or `MIG-GPU-8f3a…/1/0`.

    Drivers before R470 have only the second form: the UUID of the GPU, and the numbers of the GPU instance
    and of the compute instance, `GI ID` and `CI ID` of nvidia-smi.
    """
    match = re.fullmatch(r"MIG-(GPU-[^/]*)/([0-9]{1,4})/([0-9]{1,4})", name)
    if not match:
        return [device for device in inventory.devices if str(device.uuid).startswith(name)]
    gpus = [gpu for gpu in inventory if str(gpu.uuid).startswith(match[1])]
    return [one for gpu in gpus for one in gpu.mig if one.ids == (int(match[2]), int(match[3]))]


class Flaw(enum.Enum):
    """The kind of a note, for code that treats some notes differently."""

    QUOTES = "quotes"
    SEVERAL_MIG = "several MIG instances"
    SILENT = "GPUs that do not answer"
    CHANGED = "changed after CUDA started"
    REPLACED = "in place of a choice"
    CONTRADICTION = "other GPUs than a scheduler or a container lists"
    OTHER = "other"


class Note(NamedTuple):
    """What is wrong with the variables that name GPUs. `str` returns sentences."""

    what: str
    flaw: Flaw = Flaw.OTHER
    advice: str = ""
    is_past: bool = False  # only the variables at the start of the process are wrong

    def __str__(self) -> str:
        start = "At the start of this process: " * self.is_past
        return f"{start}{self.what}{f' {self.advice}' * bool(self.advice)}"


class Reading(NamedTuple):
    """The meaning of a mask on a machine."""

    devices: tuple[Device, ...] | Unknown  # the devices that CUDA sees, in the order of cuda:i
    notes: tuple[Note, ...] = ()  # what is wrong with the mask; the last one tells why it is UNKNOWN
    by_uuid: bool = False  # whether it is a list of UUIDs, which its first entry decides
    names_all: bool = False  # whether its numbers name every GPU of the machine, in any order
    others: tuple[Device, ...] = ()  # if CUDA sees fewer devices than the mask names: all that it names

    @property
    def named(self) -> tuple[Device, ...] | Unknown:
        """The devices that the mask names, whether or not CUDA sees all of them."""
        return self.others or self.devices


def read(mask: str | None, inventory: Inventory, order: str | None = None) -> Reading:
    """Read a CUDA_VISIBLE_DEVICES and a CUDA_DEVICE_ORDER (None: not set) as CUDA does."""
    if inventory.problem:  # the GPUs of this machine are unknown
        return Reading(() if mask is not None and mask.strip() in _MEANT_AS_NONE else UNKNOWN)
    if mask is not None and mask.startswith(("GPU-", "MIG-")):
        return _read_uuids(mask, inventory)
    # How CUDA counts if a GPU is split is not documented. It may count every instance.
    count = len(inventory)
    if any(gpu.is_split for gpu in inventory) and not any(gpu.problem for gpu in inventory):
        count = len(parts(inventory.devices))
    numbers, notes = list(range(len(inventory))), list[Note]()
    if mask is not None:
        numbers, notes = _numbers(mask, max(count, len(inventory)))
    if not numbers:
        return Reading((), tuple(notes))
    names_all = len(numbers) in (count, len(inventory))
    if why := _why_unclear(mask, numbers, inventory, order):
        return Reading(UNKNOWN, (*notes, why), names_all=names_all)
    return Reading(tuple(inventory[number] for number in numbers), tuple(notes), names_all=names_all)


def write(devices: Sequence[Device], *, by_uuid: bool) -> str:
    """Return the mask that makes these devices `cuda:0`, `cuda:1` and so on.

    Numbers are right only together with CUDA_DEVICE_ORDER=PCI_BUS_ID. A MIG instance has no number.
    """
    return ",".join(
        str(device.index) if isinstance(device, Gpu) and not by_uuid else str(device.uuid)
        for device in devices
    )


def _numbers(mask: str, count: int) -> tuple[list[int], list[Note]]:
    """Return the numbers up to the first invalid entry, and what is wrong with the mask.

    A repeated number makes the whole list empty, unless an entry without a number precedes it.
    """
    entries = mask.split(",")
    numbers = list(takewhile(lambda number: number >= 0, map(_number, entries)))
    if (place := _first_repeated(numbers)) is not None:
        return [], [_named_twice(mask, numbers[place])]
    valid = list(takewhile(lambda number: number < count, numbers))
    if '"' in mask or "'" in mask:
        bare = shortened(mask.replace('"', "").replace("'", ""), _LONGEST_SHOWN)
        why = f"The quotes in {_shown(mask)} are part of the value, so CUDA misreads it."
        return valid, [Note(why, Flaw.QUOTES, f"%env takes no quotes: %env CUDA_VISIBLE_DEVICES={bare}")]
    if len(valid) == len(entries):
        lenient = [entry for entry in entries if not re.fullmatch(r"\s*[+-]?[0-9]+\s*", entry)]
        at_start = "CUDA reads only the number at the start of"
        return valid, [Note(f"{at_start} {shortened(one, 20)!r} in {_shown(mask)}.") for one in lenient[:1]]
    if not valid and mask.strip() in _MEANT_AS_NONE:
        return [], []
    entry, why = entries[len(valid)].strip(), "is not a number"
    if not entry:
        why = "is empty"
    elif re.match(r"\+?[0-9]", entry):
        why = f"is not a GPU of this machine (it has {count})"
    elif re.match(r"-[0-9]", entry):
        why = "names no GPU"
    return valid, [_ends_the_list(mask, len(valid), why, f"only {', '.join(map(str, valid))}")]


def _number(entry: str) -> int:
    """Return the number at the start of an entry, as strtoul reads it. -1 if there is none."""
    match = re.match(r"([+-]?)0*([0-9]+)", entry.strip(" \t\n\r\v\f"))
    return int(match[1] + match[2][:_LONGEST_NUMBER]) if match else -1


def _why_unclear(
    mask: str | None, numbers: list[int], inventory: Inventory, order: str | None
) -> Note | None:
    """Return why CUDA's numbers may differ from nvidia-smi's. None if they are the same."""
    setting = f"CUDA_VISIBLE_DEVICES is {'not set' if mask is None else 'a list of numbers'}"
    silent = [gpu for gpu in inventory if gpu.problem]
    has_order = order == PCI or inventory.is_uniform
    if not has_order and (inventory.is_mixed or not silent):
        verb = "differ" if inventory.is_mixed else "may differ"
        return Note(
            f"{setting} and CUDA_DEVICE_ORDER is {shortened(order or 'not set', 20)}. The GPUs {verb}, so "
            "CUDA may count them in another order than nvidia-smi: which GPU is cuda:0 is unknown"
            f"{' until you choose' if mask is None else ''}."
        )
    if split := [gpu for gpu in inventory if gpu.is_split]:
        verb = "are" if split[1:] else "is"
        return Note(f"{setting} and {_gpus(split)} {verb} split by MIG, so which GPUs CUDA sees is unknown.")
    # CUDA may leave out a GPU that fell off the bus, while NVML still counts it. This is not documented, so
    # the numbers after that GPU are unknown.
    if silent and (max(numbers) >= silent[0].index or not has_order):
        why = f"{setting} and {_gpus(silent)} {_do(silent)} not answer, so which GPUs CUDA sees is unknown."
        return Note(why, Flaw.SILENT)
    return None


def _read_uuids(mask: str, inventory: Inventory) -> Reading:
    """Read a list of UUIDs, or of starts of UUIDs, of GPUs or of MIG instances.

    The first invalid entry ends the list. A repeated entry makes it empty. CUDA may see only the first of
    several MIG instances: see `takes_one`.
    """
    kind, entries = mask[:4], mask.split(",")
    names = list(takewhile(lambda entry: entry.startswith(kind), entries))
    fits = [fitting(name, inventory) for name in names]
    found = [devices[0] for devices in takewhile(lambda devices: len(devices) == 1, fits)]
    place = _first_repeated(names)  # also after an entry that fits none
    if place is None and kind == "GPU-":
        place = _first_repeated(found)
    if place is not None:
        return Reading((), (_named_twice(mask, names[place]),), by_uuid=True)
    if kind == "MIG-" and found:
        note = "CUDA_VISIBLE_DEVICES names several MIG instances. How many of them CUDA 13 uses is unknown."
        if takes_one(inventory):
            note = f"{mig_limit(inventory)}. CUDA sees only {found[0].uuid}."
        is_known = takes_one(inventory) or not found[1:]
        notes = (Note(note, Flaw.SEVERAL_MIG),) if entries[1:] else ()
        return Reading((found[0],) if is_known else UNKNOWN, notes, by_uuid=True, others=tuple(found))
    notes = ()
    if len(found) < len(entries):
        what, why = "GPU" if kind == "GPU-" else "MIG instance", "is not a GPU's UUID"
        if len(found) < len(names):
            number = len(fits[len(found)])
            why = f"matches {number} {what}s" if number else f"matches no {what} of this machine"
        notes = (_ends_the_list(mask, len(found), why, f"only {_gpus(found)}"),)
    gpus = [device for device in found if isinstance(device, Gpu)]
    if split := [gpu for gpu in gpus if gpu.is_split]:
        why = f"CUDA_VISIBLE_DEVICES names {_gpus(split)}, split by MIG. CUDA picks one instance itself."
        return Reading(UNKNOWN, (*notes, Note(why)), by_uuid=True, others=with_instances(gpus))
    if silent := [gpu for gpu in gpus if gpu.problem]:
        why = f"{_gpus(silent)} {_do(silent)} not answer, so which GPUs CUDA sees is unknown."
        return Reading(UNKNOWN, (*notes, Note(why, Flaw.SILENT)), by_uuid=True)
    return Reading(tuple(found), notes, by_uuid=True)


def _first_repeated(items: Sequence[object]) -> int | None:
    """Return the place of the first item that repeats an earlier one."""
    seen: set[object] = set()
    for place, item in enumerate(items):
        if item in seen:
            return place
        seen.add(item)
    return None


def _named_twice(mask: str, entry: object) -> Note:
    return Note(f"{_shown(mask)} names {shortened(str(entry), _LONGEST_SHOWN)} twice, so CUDA sees no GPU.")


def _ends_the_list(mask: str, place: int, why: str, seen: str) -> Note:
    seen = seen if place else "no GPU"
    return Note(f"Entry {place + 1} of {_shown(mask)} {why}. CUDA stops there and sees {seen}.")


def _shown(mask: str) -> str:
    return f"CUDA_VISIBLE_DEVICES={shortened(mask, _LONGEST_SHOWN)}"


def _gpus(gpus: Sequence[Device]) -> str:
    """Return `GPU 1`, or `GPUs 0 and 2`."""
    return f"GPU{'s' * (len(gpus) > 1)} {listed(gpu.number_text for gpu in gpus)}"


def _do(gpus: Sequence[Gpu]) -> str:
    return "do" if gpus[1:] else "does"
