"""The options of a choice: filters for `auto`, how GPUs are named, and the memory of frameworks."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.errors import ChoiceError
from gpu_magic.frameworks.base import MemorySettings
from gpu_magic.text import bytes_text, read_size, size_meant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_magic.devices.model import Device
    from gpu_magic.process.mask import By

__all__ = ["Options", "Order", "plan_memory", "read_seconds", "split_request"]

Order = Literal["pci", "fastest"]
_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}  # seconds
_NAMES = (r"d(?:ays?)?", r"h(?:(?:ou)?rs?)?", r"m(?:in(?:ute)?s?)?", r"s(?:ec(?:ond)?s?)?")
_PARTS = re.compile(r"\s*".join(rf"(?:(\d{{1,6}})\s*{name})?" for name in _NAMES), re.IGNORECASE)
_LEAST = 64 << 20  # bytes. With a lower limit, no framework starts
_MEMORY = re.compile(r"(.*?)( --growth)?(?: --memory-limit ([\w.]{1,20}(?: \w{1,5})?))?", re.DOTALL)


def read_seconds(duration: str | float) -> float:
    """Return the seconds of `30m`, `1h30m`, `30 min`, or a number. Raise ChoiceError for other text."""
    typed = str(duration).strip()
    if re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", typed) and float(typed):
        return float(typed)
    match = _PARTS.fullmatch(typed)
    parts = match.groups("0") if match else ()
    seconds = sum(int(part) * unit for part, unit in zip(parts, _UNITS.values(), strict=False))
    if not seconds:
        raise ChoiceError(f"{duration!s:.40} is not a time. Try 30m, 90s or 1h30m")
    return float(seconds)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a choice, as arguments of `choose`. `str` returns them as typed after `%gpus`."""

    by: By | None = None
    order: Order | None = None
    force: bool = False
    growth: bool = False
    memory_limit: str | int | None = None
    only_free: bool = False
    min_free: str | int | None = None
    model: str | None = None

    def __str__(self) -> str:
        return "".join(self.typed())

    @property
    def filters(self) -> str:
        """The options that filter the GPUs of `auto`, as typed. Empty if none is given."""
        return "".join(self.typed("only_free", "min_free", "model"))

    @property
    def least(self) -> int | None:
        """The bytes that must be free. None without `min_free`, or if it is invalid."""
        return None if self.min_free is None else read_size(self.min_free)

    @property
    def to_save(self) -> dict[str, Any]:
        """The options that also work with named GPUs, for `restart.saved`."""
        return asdict(replace(self, min_free=None, model=None))

    @classmethod
    def saved(cls, saved: Mapping[str, Any]) -> Options:
        """Return the options that were saved. Raise ChoiceError if they are invalid."""
        defaults = {field.name: field.default for field in fields(cls)}
        for name, value in saved.items():
            # A flag must be True or False, because a text would count as True.
            kinds = (bool,) if defaults.get(name) is False else (str, int, float, type(None))
            if name not in defaults or type(value) not in kinds:
                raise ChoiceError("its file cannot be read.")
        return cls(**saved)

    @property
    def arguments(self) -> list[str]:
        """The options that are given, as arguments of `choose`: `memory_limit='8GB'`."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return [f"{name}={value!r}" for name, value in values if value is not None and value is not False]

    def typed(self, *names: str) -> list[str]:
        """Return the options that are given, of these names or of all, as typed: ` --memory-limit 8GB`."""
        found = []
        for name in names or [field.name for field in fields(self)[1:]]:  # `by` is not typed
            value = getattr(self, name)
            if value is not None and value is not False:
                found.append(f" --{name.replace('_', '-')}" + ("" if value is True else f" {value}"))
        return found


def split_request(typed: str) -> tuple[str, Options]:
    """Split a text after `%gpus` into the GPUs and the memory options at its end, written as `str` does.

    All other text stays with the GPUs, where it is invalid.
    """
    match = _MEMORY.fullmatch(typed)
    assert match  # noqa: S101 - it matches any text
    devices, growth, limit = match.groups()
    return devices, Options(growth=growth is not None, memory_limit=limit)


def plan_memory(devices: tuple[Device, ...], *, growth: bool, limit: str | int | None) -> MemorySettings:
    """Return the settings of `--growth` and `--memory-limit` for the chosen devices.

    It raises ChoiceError without a device, or if the limit is not a size, is too small, or exceeds a device.
    """
    if not growth and limit is None:
        return MemorySettings()
    if not devices:
        asked = "--growth" if limit is None else f"--memory-limit {limit}"
        raise ChoiceError(f"{asked} needs GPUs. Try %gpus all {asked}")
    if limit is None:
        return MemorySettings(growth=True, gpus=len(devices))
    size, given, better = read_size(limit), f"--memory-limit {limit!s:.40}", size_meant(limit, "8GB")
    largest = 0
    if size is None:
        raise ChoiceError(f"{given} is not a size. Try --memory-limit {better}")
    if size < _LEAST:
        raise ChoiceError(f"{given} is too small for a framework to start. Try --memory-limit {better}")
    for device in devices:
        if device.memory_total is UNKNOWN:
            raise ChoiceError(f"{device.label} does not report its memory, so it cannot be limited.")
        if size > device.memory_total:
            there = bytes_text(device.memory_total)
            raise ChoiceError(f"--memory-limit {limit} is more than {device.label} has ({there}).")
        largest = max(largest, device.memory_total)
    return MemorySettings(growth, size, size / largest, len(devices), limit)
