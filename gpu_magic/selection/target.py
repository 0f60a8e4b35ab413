"""Where a cell is to run: `0`  `cuda:1`  `/GPU:0`  `smi:3`  `GPU-8f3a`  `cpu:2`, read into targets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from gpu_magic.errors import PlacementError

__all__ = ["CPU", "LogicalDevice", "PhysicalDevice", "Target", "parse_targets"]

_EXPECTED = "0, cuda:0, /GPU:0, gpu:0, smi:3 (nvidia-smi's number), a UUID prefix (GPU-8f3a), cpu or cpu:2"
# TensorFlow's spelling may have a job in front, and "device:" within.
_SPELLING = re.compile(
    r"(?:/job:\w+/replica:\d+/task:\d+)?/?(?:device:)?([a-z]\w*?):([0-9]{1,4})", re.IGNORECASE
)
_LONE = ("cpu", "mps")  # what there is one of


@dataclass(frozen=True, slots=True)
class LogicalDevice:
    """A device as this process's frameworks number it.

    Parameters
    ----------
    kind
        "gpu", or "cpu".
    index
        The i of `cuda:i`; for the CPU that of TensorFlow's and JAX's logical CPUs.
    type
        "cuda", "xpu", … where one was named; empty for the GPU of whichever kind a framework has.

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
    """A device of the machine: nvidia-smi's number, or the beginning of a UUID."""

    wanted: int | str

    def __str__(self) -> str:
        return f"smi:{self.wanted}" if isinstance(self.wanted, int) else self.wanted


Target = LogicalDevice | PhysicalDevice


@lru_cache(maxsize=64)
def parse_targets(text: str) -> tuple[Target, ...]:
    """Read one target, or several with commas between.

    Raises
    ------
    PlacementError
        One line: what is wrong, and the nearest thing that would work.

    """
    asked = re.sub(r"[\[\]()'\"]", "", text).strip()
    if not asked:
        raise PlacementError(f"No device is named; expected {_EXPECTED}.")
    if "{" in asked:
        raise PlacementError(f"{text.strip()!r} is not a variable or an expression that has a value here.")
    parts = [part.strip() for part in asked.split(",")]
    if not all(parts):
        rest = ",".join(filter(None, parts)) or "0"
        raise PlacementError(f"{asked!r} has a comma with nothing beside it; try {rest}.")
    targets = tuple(map(_target, parts))
    again = next((one for place, one in enumerate(targets) if one in targets[:place]), None)
    if again is not None:
        better = ",".join(dict.fromkeys(parts))
        raise PlacementError(f"{asked!r} names a device twice; try {better}.")
    return targets


def _target(part: str) -> Target:
    low = part.lower()
    if re.fullmatch(r"[0-9]{1,4}", part):
        return LogicalDevice("gpu", int(part))
    if low.lstrip("/") in _LONE:
        return _place(low.lstrip("/"), 0)
    if match := _SPELLING.fullmatch(part):
        name, index = match[1].lower(), int(match[2])
        return PhysicalDevice(index) if name == "smi" else _place(name, index)
    if match := re.fullmatch(r"(GPU|MIG)-([0-9a-f-]+)", part, re.IGNORECASE):
        return PhysicalDevice(f"{match[1].upper()}-{match[2].lower()}")
    raise PlacementError(_what_was_meant(part))


def _place(name: str, index: int) -> LogicalDevice:
    if name == "cpu":
        return LogicalDevice("cpu", index)
    return LogicalDevice("gpu", index, "" if name == "gpu" else name)


def _what_was_meant(part: str) -> str:
    if re.fullmatch(r"-[0-9]+", part):
        return f"{part!r}: devices are numbered from 0; cpu is the CPU."
    if match := re.fullmatch(r"smi[ :-]*([0-9]+)?", part, re.IGNORECASE):
        return f"{part!r} is no device; smi:{match[1] or 0} is GPU {match[1] or 0} of nvidia-smi."
    if match := re.fullmatch(r"/?(gpu|cuda|cpu)[ _]*([0-9]*)", part, re.IGNORECASE):
        return f"{part!r} needs its number behind a colon; try {match[1].lower()}:{match[2] or 0}."
    if re.search(r"[;|&+\s]", part):
        better = ",".join(re.split(r"[;|&+\s]+", part))
        return f"{part!r} is no device. One is expected, or with --mirror several, with commas: {better}."
    if part.lower().startswith("auto"):
        return f"{part!r} chooses GPUs: try %gpus {part}, and then 0 here."
    return f"{part!r} is no device; expected {_EXPECTED}. Other accelerators have a number, too: xpu:0."
