"""CUDA_VISIBLE_DEVICES as the CUDA driver reads it: read, write, explain.

The driver reads it once, in cuInit, with CUDA_DEVICE_ORDER. Source: CUDA programming guide, "CUDA
environment variables"; details (duplicates, strtoul's leniency, what fixes the kind) as PyTorch 2.13's
`torch.cuda._parse_visible_devices` copies them from the driver, which our tests compare against.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from gpu_magic.devices.model import Device, Gpu, Inventory, MigInstance
from gpu_magic.devices.record import record
from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FASTEST", "PCI", "Kind", "Reading", "read", "write"]

Kind = Literal["unset", "index", "uuid", "mig"]
PCI, FASTEST = "PCI_BUS_ID", "FASTEST_FIRST"

# More digits than any number that strtoul can give; int() refuses thousands of them.
_LONGEST_NUMBER = 20
_LONGEST_SHOWN = 120

# Ways in which people write "no GPU" on purpose; they are not explained as mistakes.
_MEANT_AS_NONE = {"", "-1", "none", "NoDevFiles", "void"}


@record
class Reading:
    """What a mask means on a machine.

    Parameters
    ----------
    kind
        What its first entry makes it: a list of numbers, of GPU UUIDs or of MIG UUIDs.
    devices
        What CUDA sees, in the order of `cuda:0`, `cuda:1`, …; UNKNOWN where that can't be told.
    notes
        What is odd about the mask, a sentence each; also why `devices` is UNKNOWN.
    names_all
        Whether it names every GPU of the machine, in whatever order.

    """

    kind: Kind
    devices: tuple[Device, ...] | Unknown
    notes: tuple[str, ...] = ()
    names_all: bool = False


def read(mask: str | None, inventory: Inventory, order: str | None = None) -> Reading:
    """Tell what CUDA would see.

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
        return _numbered("unset", tuple(range(len(inventory))), inventory, order, ())
    if mask.startswith("GPU-"):
        return _by_uuid(mask, inventory)
    if mask.startswith("MIG-"):
        return _by_mig(mask, inventory)
    numbers, notes = _numbers(mask, len(inventory))
    return _numbered("index", numbers, inventory, order, notes)


def write(devices: Sequence[Device], *, by_uuid: bool) -> str:
    """Write the mask that makes these devices `cuda:0`, `cuda:1` and so on.

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


def _numbers(mask: str, count: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Read a list of numbers as the driver does: with strtoul, up to the first entry that is none."""
    entries = mask.split(",")
    numbers: list[int] = []
    named: set[int] = set()
    stop: int | None = None
    for place, entry in enumerate(entries):
        match = re.match(r"([+-]?)0*([0-9]+)", entry.strip(" \t\n\r\v\f"))
        number = int(match[1] + match[2][:_LONGEST_NUMBER]) if match else -1
        if number in named:
            return (), (f"{_shown(mask)} names {number} twice: CUDA then sees no GPU at all.",)
        if number < 0:
            stop = place
            break
        named.add(number)
        numbers.append(number)
    outside = next((place for place, number in enumerate(numbers) if number >= count), None)
    if outside is not None:
        numbers, stop = numbers[:outside], outside
    return tuple(numbers), tuple(_explain_numbers(mask, entries, stop, numbers, count))


def _explain_numbers(
    mask: str, entries: list[str], stop: int | None, numbers: list[int], count: int
) -> list[str]:
    if '"' in mask or "'" in mask:
        bare = shortened(mask.replace('"', "").replace("'", ""), _LONGEST_SHOWN)
        why = f"The quotes in {_shown(mask)} are part of the value, so CUDA does not read what was meant."
        return [f"{why} %env takes no quotes: %env CUDA_VISIBLE_DEVICES={bare}"]
    if stop is not None and not (stop == 0 and mask.strip() in _MEANT_AS_NONE):
        entry = entries[stop].strip()
        if not entry:
            why = "is empty"
        elif re.match(r"\+?[0-9]", entry):
            why = f"is no GPU of this machine (it has {count})"
        else:
            why = "is not a number"
        seen = f"only {', '.join(map(str, numbers))}" if numbers else "no GPU"
        return [f"Entry {stop + 1} of {_shown(mask)} {why} and ends the list: CUDA sees {seen}."]
    lenient = [entry for entry in entries if not re.fullmatch(r"\s*[+-]?[0-9]+\s*", entry)]
    if stop is None and lenient:
        return [
            f"CUDA reads only the number at the start of {shortened(lenient[0], 20)!r} in {_shown(mask)}."
        ]
    return []


def _numbered(
    kind: Kind, numbers: tuple[int, ...], inventory: Inventory, order: str | None, notes: tuple[str, ...]
) -> Reading:
    """Turn CUDA's numbers into GPUs, where that can be told at all."""
    setting = (
        "As CUDA_VISIBLE_DEVICES is not set"
        if kind == "unset"
        else "As CUDA_VISIBLE_DEVICES is a list of numbers"
    )
    if not numbers:
        return Reading(kind, (), notes)
    names_all = len(numbers) == len(inventory)
    if order != PCI and not inventory.is_uniform:
        why = (
            f"{setting} and CUDA_DEVICE_ORDER is {order or 'not set'}, CUDA may count this machine's GPUs "
            "in another order than nvidia-smi, as they differ: which is cuda:0 can't be known"
            f"{' until you choose' if kind == 'unset' else ''}."
        )
        return Reading(kind, UNKNOWN, (*notes, why), names_all=names_all)
    split = [gpu.index for gpu in inventory if gpu.is_split]
    if split:
        why = f"{setting}, what CUDA sees can't be known from here: {_list(split)} {_is(split)} split by MIG."
        return Reading(kind, UNKNOWN, (*notes, why), names_all=names_all)
    silent = [gpu.index for gpu in inventory if gpu.problem]
    if silent and max(numbers) >= silent[0]:
        # A GPU that fell off the bus may be left out of CUDA's numbers, and still counts in NVML's.
        # Which way it goes is not documented, so nothing is said of the numbers behind it.
        why = f"{setting}, what CUDA sees can't be known while {_list(silent)} {_does(silent)} not answer."
        return Reading(kind, UNKNOWN, (*notes, why), names_all=names_all)
    return Reading(kind, tuple(inventory[number] for number in numbers), notes, names_all=names_all)


def _by_uuid(mask: str, inventory: Inventory) -> Reading:
    entries = mask.split(",")
    gpus = [gpu for gpu in inventory if gpu.uuid is not UNKNOWN]
    found: list[Gpu] = []
    seen_before: set[str] = set()
    stop = ""
    for place, entry in enumerate(entries):
        if entry in seen_before:  # counts even behind an entry that ended the list
            return _named_twice(mask, entry)
        seen_before.add(entry)
        if not entry.startswith("GPU-"):
            stop = stop or f"Entry {place + 1} of {_shown(mask)} is not a GPU's UUID"
            break
        if stop:
            continue
        fits = [gpu for gpu in gpus if str(gpu.uuid).startswith(entry)]
        if len(fits) != 1:
            why = f"fits {len(fits)} GPUs" if fits else "fits no GPU of this machine"
            stop = f"Entry {place + 1} of {_shown(mask)} {why}"
        elif fits[0] in found:
            return _named_twice(mask, entry)
        else:
            found.append(fits[0])
    seen = f"only {_list([gpu.index for gpu in found])}" if found else "no GPU"
    notes = (f"{stop} and ends the list: CUDA sees {seen}.",) if stop else ()
    split = [gpu.index for gpu in found if gpu.is_split]
    if split:
        why = f"CUDA_VISIBLE_DEVICES names {_list(split)}, split by MIG: CUDA picks one instance itself."
        return Reading("uuid", UNKNOWN, (*notes, why))
    silent = [gpu.index for gpu in found if gpu.problem]
    if silent:
        why = (
            f"{_list(silent)} in CUDA_VISIBLE_DEVICES {_does(silent)} not answer: what CUDA sees is unknown."
        )
        return Reading("uuid", UNKNOWN, (*notes, why))
    return Reading("uuid", tuple(found), notes)


def _named_twice(mask: str, entry: str) -> Reading:
    return Reading("uuid", (), (f"{_shown(mask)} names {entry} twice: CUDA then sees no GPU at all.",))


def _by_mig(mask: str, inventory: Inventory) -> Reading:
    """One process can use one MIG instance, the first that is named."""
    first, *others = mask.split(",")
    fits: list[MigInstance] = [part for gpu in inventory for part in gpu.mig if part.uuid.startswith(first)]
    if len(fits) != 1:
        why = f"fits {len(fits)} MIG instances" if fits else "fits no MIG instance of this machine"
        return Reading(
            "mig",
            (),
            (f"{shortened(first, _LONGEST_SHOWN)} in CUDA_VISIBLE_DEVICES {why}: CUDA sees no GPU.",),
        )
    notes = (f"One process can use one MIG instance: CUDA sees {fits[0].uuid} alone.",) if others else ()
    return Reading("mig", (fits[0],), notes)


def _is(indices: Sequence[int]) -> str:
    return "is" if len(indices) == 1 else "are"


def _does(indices: Sequence[int]) -> str:
    return "does" if len(indices) == 1 else "do"


def _shown(mask: str) -> str:
    return f"CUDA_VISIBLE_DEVICES={shortened(mask, _LONGEST_SHOWN)}"


def _list(indices: Sequence[int]) -> str:
    """Write `GPU 1` or `GPUs 0 and 2`."""
    if len(indices) == 1:
        return f"GPU {indices[0]}"
    return f"GPUs {', '.join(map(str, indices[:-1]))} and {indices[-1]}"
