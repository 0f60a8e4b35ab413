"""The options of a choice: which GPUs `auto` takes, what names them, and how frameworks take memory."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.errors import ChoiceError
from gpu_magic.frameworks.base import MemorySettings
from gpu_magic.text import bytes_text, read_size, size_meant

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpu_magic.devices.model import Device
    from gpu_magic.process.mask import By

__all__ = [
    "Options",
    "Order",
    "WaitOptions",
    "check_wait_options",
    "plan_memory",
    "read_seconds",
    "split_request",
]

Order = Literal["pci", "fastest"]
_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}  # seconds
_NAMES = (r"d(?:ays?)?", r"h(?:(?:ou)?rs?)?", r"m(?:in(?:ute)?s?)?", r"s(?:ec(?:ond)?s?)?")
_PARTS = re.compile(r"\s*".join(rf"(?:(\d{{1,6}})\s*{name})?" for name in _NAMES), re.IGNORECASE)
_LEAST = 64 << 20  # less than that no framework starts with
_MEMORY = re.compile(r"(.*?)( --growth)?(?: --memory-limit ([\w.]{1,20}(?: \w{1,5})?))?", re.DOTALL)
# Those that go with `auto`; the first one with GPUs that are named, too.
_FILTERS = ("only_free", "min_free", "model")


def read_seconds(duration: str | float) -> float:
    """Return the seconds of `30m`, `1h30m`, `2d`, `30 min`; a number is seconds.

    Parameters
    ----------
    duration
        What was given.

    Raises
    ------
    ChoiceError
        It is no duration.

    """
    typed = str(duration).strip()
    if re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", typed) and float(typed):
        return float(typed)
    match = _PARTS.fullmatch(typed)
    parts = match.groups("0") if match else ()
    seconds = sum(int(part) * unit for part, unit in zip(parts, _UNITS.values(), strict=False))
    if not seconds:
        raise ChoiceError(f"{duration!s:.40} is no time; try 30m, or 90s, or 1h30m.")
    return float(seconds)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a choice. `str` returns them as they are typed after `%gpus`.

    Parameters
    ----------
    by
        Write CUDA_VISIBLE_DEVICES by number or by UUID; None does as the inherited value does.
    order
        CUDA_DEVICE_ORDER: by PCI bus, or the fastest GPU first; None does as the inherited value does.
    force
        Allow GPUs outside the inherited CUDA_VISIBLE_DEVICES.
    growth, memory_limit
        How frameworks may take memory: see `MemorySettings`.
    only_free
        Take GPUs that are named where nobody else uses or has claimed them. `auto` takes GPUs that nobody
        uses, and fails where there are not enough.
    min_free
        It takes GPUs with so much free memory: "20GB", or a number of bytes.
    model
        And with these words in their names: "A100".

    """

    by: By | None = None
    order: Order | None = None
    force: bool = False
    growth: bool = False
    memory_limit: str | int | None = None
    only_free: bool = False
    min_free: str | int | None = None
    model: str | None = None

    def __str__(self) -> str:
        return self._typed(tuple(field.name for field in fields(self)[1:]))  # `by` is not typed

    @property
    def given(self) -> list[str]:
        """Those that were given, without their values: `--memory-limit`."""
        return [
            f"--{field.name.replace('_', '-')}" for field in fields(self)[1:] if self._is_given(field.name)
        ]

    @property
    def filters(self) -> str:
        """Those that say which GPUs `auto` takes, as they are typed; empty where none is given."""
        return self._typed(_FILTERS)

    @property
    def to_save(self) -> dict[str, Any]:
        """Those of them that go with GPUs that are named, for `restart.saved`."""
        return asdict(replace(self, min_free=None, model=None))

    @classmethod
    def saved(cls, saved: Mapping[str, Any]) -> Options:
        """Return what was saved, which can be anything; else raise ChoiceError."""
        defaults = {field.name: field.default for field in fields(cls)}
        # A flag is True or False, as `choose` takes it: else a text would count as yes.
        is_flag = {name: value is False for name, value in defaults.items()}
        if not saved.keys() <= defaults.keys() or not all(
            isinstance(value, bool) if is_flag[name] else value is None or type(value) in (str, int, float)
            for name, value in saved.items()
        ):
            raise ChoiceError("its file can't be read.")
        return cls(**saved)

    def _is_given(self, name: str) -> bool:
        value = getattr(self, name)
        return value is not None and value is not False

    def _typed(self, names: tuple[str, ...]) -> str:
        typed = ""
        for name in filter(self._is_given, names):
            value = getattr(self, name)
            typed += f" --{name.replace('_', '-')}" + ("" if value is True else f" {value}")
        return typed


class WaitOptions(TypedDict, total=False):
    """The options of a choice that is waited for, as in `Options`."""

    by: By | None
    order: Order | None
    force: bool
    growth: bool
    memory_limit: str | int | None
    min_free: str | int | None
    model: str | None


def check_wait_options(given: Iterable[str]) -> None:
    """Check that all names of options are those of `WaitOptions`.

    Raises
    ------
    ChoiceError
        One is not.

    """
    for name in given:
        if name not in WaitOptions.__annotations__:
            import difflib  # needed by few

            close = difflib.get_close_matches(name, WaitOptions.__annotations__, n=1)
            meant = f"did you mean {close[0]}?" if close else 'within="30m" says how long it waits.'
            raise ChoiceError(f"wait_for takes no {name}: {meant}")


def split_request(typed: str) -> tuple[str, Options]:
    """Return the GPUs of what is typed after `%gpus`, and the options after them, as `str` writes those.

    Only the options for memory are read. All else is left with the GPUs, where it names none.
    """
    match = _MEMORY.fullmatch(typed)
    assert match  # noqa: S101 - it matches any text
    devices, growth, limit = match.groups()
    return devices, Options(growth=growth is not None, memory_limit=limit)


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
        asked = "--growth" if limit is None else f"--memory-limit {limit}"
        raise ChoiceError(f"{asked} goes with GPUs that are named; try %gpus all {asked}.")
    if limit is None:
        return MemorySettings(growth=True, gpus=len(devices))
    size = _size(limit)
    for device in devices:
        if device.memory_total is UNKNOWN:
            raise ChoiceError(f"{device.label} does not report its memory, so no limit can be set.")
        if size > device.memory_total:
            there = bytes_text(device.memory_total)
            raise ChoiceError(f"--memory-limit {limit} is more than {device.label} has: {there}.")
    largest = max(device.memory_total for device in devices if device.memory_total is not UNKNOWN)
    return MemorySettings(growth, size, size / largest, len(devices), limit)


def _size(limit: str | int) -> int:
    size, given, better = read_size(limit), f"--memory-limit {limit!s:.40}", size_meant(limit, "8GB")
    if size is None:
        raise ChoiceError(f"{given} is not a size; try --memory-limit {better}.")
    if size < _LEAST:
        raise ChoiceError(f"{given} is less than any framework starts with; try {better}.")
    return size
