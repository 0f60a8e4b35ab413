"""Parses where a cell is to run, `0`  `cuda:1`  `/GPU:0`  `smi:3`  `GPU-8f3a`  `cpu:2`, into targets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from gpu_magic.errors import PlacementError
from gpu_magic.selection.plain import in_ascii, without_brackets
from gpu_magic.selection.request import is_request, read_uuid

__all__ = ["CPU", "LogicalDevice", "PhysicalDevice", "Target", "is_target", "parse_targets"]

_EXPECTED = "0, cuda:0, /GPU:0, gpu:0, smi:3 (nvidia-smi's number), a UUID prefix (GPU-8f3a), cpu or cpu:2"
# TensorFlow's names can begin with a job, and contain "device:".
_SPELLING = re.compile(
    r"(?:/job:\w+/replica:\d+/task:\d+)?/?(?:(?:physical_)?device:)?([a-z]\w*?):([0-9]{1,4})", re.IGNORECASE
)
# What `{device}` makes of the device objects of TensorFlow and CuPy, and what they name.
_OBJECTS = (
    (re.compile(r"(?:Physical|Logical)Device\(name='([^']*)', device_type='\w*'\)"), r"\1"),
    (re.compile(r"<CUDA Device ([0-9]+)>"), r"cuda:\1"),
)
_WITHOUT_INDEX = ("cpu", "mps")  # may be named without a number


@dataclass(frozen=True, slots=True)
class LogicalDevice:
    """A device as the frameworks of this process number it: `cuda:1`, `cpu`.

    Parameters
    ----------
    kind
        "cpu", or "gpu" for any accelerator.
    index
        The i of `cuda:i`. For the CPU, the i of TensorFlow's and JAX's logical CPUs.
    type
        Which accelerator, as PyTorch calls it: "cuda", "xpu", "mps". Empty where none was named (`0`,
        `gpu:0`): the one that a framework has. Always empty for the CPU.

    """

    kind: str
    index: int
    type: str = ""

    def __str__(self) -> str:
        if self.kind == "cpu":
            return f"cpu:{self.index}" if self.index else "cpu"
        return f"{self.type or 'cuda'}:{self.index}"


CPU = LogicalDevice("cpu", 0)


@dataclass(frozen=True, slots=True)
class PhysicalDevice:
    """A device of the machine: `smi:3`, `GPU-8f3a`.

    Parameters
    ----------
    identifier
        An int is nvidia-smi's number of a GPU. A str is the beginning of a UUID, a MIG instance, `2:1`, or
        rocm-smi's number of a GPU, `amd:1`.

    """

    identifier: int | str

    def __str__(self) -> str:
        name = str(self.identifier)
        return f"smi:{name}" if name[0].isdecimal() else name


Target = LogicalDevice | PhysicalDevice


@lru_cache(maxsize=64)
def parse_targets(text: str) -> tuple[Target, ...]:
    """Return the target that a text names, or several with commas between.

    Raises
    ------
    PlacementError
        The text names no device, or one twice. The message says what would work.

    """
    named = text
    for pattern, name in _OBJECTS:
        named = pattern.sub(name, named)
    asked = without_brackets(named)
    if not asked:
        raise PlacementError(f"No device is named; expected {_EXPECTED}.")
    if "{" in asked:
        raise PlacementError(f"{text.strip()!r} is not a variable or an expression that has a value here.")
    entries = [entry.strip() for entry in asked.split(",")]
    if (plain := in_ascii(asked)) != asked and all(map(_is_target, plain.split(","))):
        raise PlacementError(
            f"{asked!r} needs plain digits, commas and colons; try {_one_of(plain.split(','))}."
        )
    targets = tuple(_target(entry) for entry in entries if entry)
    if len(targets) < len(entries):
        better = _one_of(list(filter(None, entries)) or ["0"])
        raise PlacementError(f"{asked!r} has a comma with nothing beside it; try {better}.")
    if len(set(targets)) < len(targets):
        raise PlacementError(f"{asked!r} names a device twice; try {_one_of(entries)}.")
    return targets


def is_target(text: str) -> bool:
    """Return whether `parse_targets` takes a text."""
    try:
        return bool(parse_targets(text))
    except PlacementError:
        return False


def _one_of(entries: list[str]) -> str:
    """Return what can be typed where some were named, as a cell runs on one and a mirror on several."""
    each = {_target(entry.strip()): entry.strip() for entry in reversed(entries)}  # the first way to write it
    first, *others = reversed(each.values())
    return f"{first}, or {','.join([first, *others])} for a mirror" if others else first


def _is_target(entry: str) -> bool:
    return _read(entry.strip()) is not None


def _target(entry: str) -> Target:
    target = _read(entry)
    if target is None:
        raise PlacementError(_what_was_meant(entry))
    return target


def _read(entry: str) -> Target | None:
    """Return the target that an entry names; None where it names none."""
    low = entry.lower()
    if re.fullmatch(r"[0-9]{1,4}", entry):
        return LogicalDevice("gpu", int(entry))
    if low.lstrip("/") in _WITHOUT_INDEX:
        return _logical(low.lstrip("/"), 0)
    if match := _SPELLING.fullmatch(entry):
        name, index = match[1].lower(), int(match[2])
        if name == "amd":
            return PhysicalDevice(f"amd:{index}")
        return PhysicalDevice(index) if name == "smi" else _logical(name, index)
    if match := re.fullmatch(r"smi:([0-9]{1,4}):([0-9]{1,4})", entry, re.IGNORECASE):
        return PhysicalDevice(f"{int(match[1])}:{int(match[2])}")
    uuid = read_uuid(entry)
    return PhysicalDevice(uuid) if uuid else None


def _logical(name: str, index: int) -> LogicalDevice:
    if name == "cpu":
        return LogicalDevice("cpu", index)
    return LogicalDevice("gpu", index, "" if name == "gpu" else name)


def _what_was_meant(entry: str) -> str:
    """Return what is wrong with an entry that names no device, and what would work."""
    if re.fullmatch(r"-[0-9]+", entry):
        return f"{entry!r}: devices are numbered from 0; cpu is the CPU."
    if re.fullmatch(r"[0-9]{1,4}:[0-9]{1,4}", entry):
        return f"{entry!r} is nvidia-smi's name of a MIG instance; try smi:{entry}."
    if shorter := _with_fewer_colons(entry):
        return f"{entry!r} has a colon too many; try {shorter}."
    if match := re.fullmatch(r"smi[ :-]*([0-9]{1,4})?", entry, re.IGNORECASE):
        return f"{entry!r} is not a device; smi:{match[1] or 0} is GPU {match[1] or 0} of nvidia-smi."
    if match := re.fullmatch(r"/?(gpu|cuda|cpu)[ _(]*([0-9]{0,4})\)?", entry, re.IGNORECASE):
        return f"{entry!r} needs a number after a colon; try {match[1].lower()}:{match[2] or 0}."
    first, *others = [word for word in re.split(r"[;|&+\s]+", entry) if word] or [""]
    if others and _is_target(first):
        words = [first, *others]
        better = _one_of(words) if all(map(_is_target, words)) else first
        return f"{entry!r} is not a device; try {better}."
    if first.lower() in ("none", "no", "off"):
        return f"{entry!r} is not a device; try cpu, which runs it without a GPU."
    if first.lower() in ("all", "every", "both", "*"):
        return f"{entry!r} is not one device; try {1 if '0' in others else 0}."
    if entry.lower().startswith("auto") and is_request(entry):
        return f"{entry!r} chooses GPUs: try %gpus {entry}, and then 0 here."
    return f"{entry!r} is not a device; expected {_EXPECTED}. Other accelerators have a number, too: xpu:0."


def _with_fewer_colons(entry: str) -> str:
    """Return the longest beginning of a name with several colons that is a device; empty for none."""
    if not re.match(r"[^:]*:[^:]*:", entry):
        return ""
    parts = entry.split(":", maxsplit=3)[:3]
    return next(filter(_is_target, (":".join(parts[:count]) for count in (3, 2, 1))), "")
