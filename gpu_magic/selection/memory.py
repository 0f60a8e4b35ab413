"""How much of a GPU's memory frameworks may take: `--growth`, `--memory-limit 8GB`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.errors import ChoiceError
from gpu_magic.text import bytes_text

if TYPE_CHECKING:
    from gpu_magic.devices.model import Device

__all__ = ["Memory", "plan"]

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_LEAST = 64 << 20  # less than that no framework starts with


@dataclass(frozen=True, slots=True)
class Memory:
    """What frameworks are told; empty: nothing.

    Parameters
    ----------
    growth
        Take memory as it is needed, and not most of it at once.
    limit
        Bytes of each GPU; None: no limit.
    fraction
        The limit as a part of the largest GPU's memory, for frameworks that know no bytes.
    gpus
        How many GPUs there are.

    """

    growth: bool = False
    limit: int | None = None
    fraction: float | None = None
    gpus: int = 0

    def __bool__(self) -> bool:
        return self.growth or self.limit is not None

    def __str__(self) -> str:
        said = ["TensorFlow and JAX take memory as they need it"] if self.growth else []
        if self.limit is not None:
            said.append(f"TensorFlow, JAX and PyTorch take at most {bytes_text(self.limit)} of a GPU")
        return f"{'; '.join(said)}." if said else ""


def plan(devices: tuple[Device, ...], *, growth: bool, limit: str | int | None) -> Memory:
    """Read what is wanted for some devices.

    Raises
    ------
    ChoiceError
        For a size that is none, or that a device has not got.

    """
    if not growth and limit is None:
        return Memory()
    if not devices:
        raise ChoiceError("--growth and --memory-limit go with GPUs, and there is none in this choice.")
    if limit is None:
        return Memory(growth=True, gpus=len(devices))
    size = _size(limit)
    for device in devices:
        if device.memory_total is UNKNOWN:
            raise ChoiceError(f"{device.label} does not tell its memory, so no limit can be set on it.")
        if size > device.memory_total:
            there = bytes_text(device.memory_total)
            raise ChoiceError(f"--memory-limit {limit} is more than {device.label} has: {there}.")
    largest = max(device.memory_total for device in devices if device.memory_total is not UNKNOWN)
    return Memory(growth=growth, limit=size, fraction=size / largest, gpus=len(devices))


def _size(asked: str | int) -> int:
    """Read `8GB` (10 to the 9th bytes each), `8GiB` (2 to the 30th) or `512MB`; a number is bytes."""
    text = str(asked)
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?)\s*([KMGT]?)(i?)B?", text.strip(), re.IGNORECASE)
    if not match or (match[3] and not match[2]):
        raise ChoiceError(f"--memory-limit {text} is no size; try --memory-limit 8GB, or 8GiB.")
    unit = match[2].upper()
    size = round(float(match[1]) * (_BINARY if match[3] else _UNITS)[unit])
    if size < _LEAST:
        raise ChoiceError(f"--memory-limit {text} is less than any framework starts with; try 8GB.")
    return size
