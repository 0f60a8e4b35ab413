"""How frameworks may take a GPU's memory: `--growth`, `--memory-limit 8GB`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.errors import ChoiceError
from gpu_magic.selection.options import Options
from gpu_magic.selection.size import read_size, size_as_typed, size_meant
from gpu_magic.spelling import either, option
from gpu_magic.text import bytes_text

if TYPE_CHECKING:
    from gpu_magic.devices.model import Device

__all__ = ["MemorySettings", "plan_memory"]

_LEAST = 64 << 20  # less than that no framework starts with


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """How frameworks may take memory. Without growth and limit, nothing is set.

    Parameters
    ----------
    growth
        Take memory as it is needed, instead of most of it when the framework starts.
    limit
        The most of each GPU's memory, in bytes; None: no limit.
    fraction
        The limit as a fraction of the memory of the largest GPU, for frameworks that take no bytes.
    gpus
        How many GPUs are chosen.
    typed
        The limit as it was typed: `8GB`, or a number of bytes.

    """

    growth: bool = False
    limit: int | None = None
    fraction: float | None = None
    gpus: int = 0
    typed: str | int | None = field(default=None, compare=False)

    def __bool__(self) -> bool:
        return self.growth or self.limit is not None

    def __str__(self) -> str:
        said = ["TensorFlow and JAX take memory as they need it"] if self.growth else []
        if self.typed is not None:
            said.append(f"TensorFlow, JAX and PyTorch take at most {size_as_typed(self.typed)} of a GPU")
        return f"{'; '.join(said)}." if said else ""

    @property
    def options(self) -> Options:
        """The options that ask for it."""
        return Options(growth=self.growth, memory_limit=self.typed)


def plan_memory(devices: tuple[Device, ...], *, growth: bool, limit: str | int | None) -> MemorySettings:
    """Return the settings for some devices.

    Parameters
    ----------
    devices
        Those that are chosen.
    growth, limit
        As typed after `--growth` and `--memory-limit`; a limit that is a number is bytes.

    Raises
    ------
    ChoiceError
        `limit` is not a size, or more than a device has; or there is not a device.

    """
    if not growth and limit is None:
        return MemorySettings()
    if not devices:
        asked = option("growth", True) if limit is None else option("memory_limit", limit)
        way = either(f"%gpus all {asked}", f"choose('all', {asked})")
        raise ChoiceError(f"{asked} goes with GPUs that are named; try {way}.")
    if limit is None:
        return MemorySettings(growth=True, gpus=len(devices))
    size = _size(limit)
    for device in devices:
        if device.memory_total is UNKNOWN:
            raise ChoiceError(f"{device.label} does not report its memory, so no limit can be set.")
        if size > device.memory_total:
            there = bytes_text(device.memory_total)
            raise ChoiceError(f"{option('memory_limit', limit)} is more than {device.label} has: {there}.")
    largest = max(device.memory_total for device in devices if device.memory_total is not UNKNOWN)
    return MemorySettings(growth, size, size / largest, len(devices), limit)


def _size(limit: str | int) -> int:
    size, given, better = read_size(limit), option("memory_limit", limit), size_meant(limit, "8GB")
    if size is None:
        raise ChoiceError(f"{given} is not a size; try {option('memory_limit', better)}.")
    if size < _LEAST:
        raise ChoiceError(f"{given} is less than any framework starts with; try {better}.")
    return size
