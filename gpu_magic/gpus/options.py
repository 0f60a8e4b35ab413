"""The values of a choice's options, made from their entries in `option_table.py`, and what they mean."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections import namedtuple
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast, get_type_hints

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.errors import ChoiceError, wrong_argument
from gpu_magic.option_table import CHOICE, FILTERS, TYPICAL, Kind
from gpu_magic.text import bytes_text, nearest_option, read_size, size_meant

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from gpu_magic.devices.model import Device
    from gpu_magic.frameworks.base import MemorySettings
    from gpu_magic.option_table import ChoiceOptions

__all__ = ["Options", "check_names", "in_signature", "plan_memory", "read_seconds", "split_request"]

_Function = TypeVar("_Function", bound="Callable[..., Any]")
_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}  # seconds
_NAMES = (r"d(?:ays?)?", r"h(?:(?:ou)?rs?)?", r"m(?:in(?:ute)?s?)?", r"s(?:ec(?:ond)?s?)?")
_PARTS = r"\s*".join(rf"(?:(\d{{1,6}})\s*{name})?" for name in _NAMES)
_LEAST = 64 << 20  # bytes. With a lower limit, no framework starts


def read_seconds(duration: str | float) -> float:
    """Return the seconds of `30m`, `1h30m`, `30 min`, or a number. Raise ChoiceError for other text."""
    typed = str(duration).strip()
    if re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", typed) and float(typed):
        return float(typed)
    match = re.fullmatch(_PARTS, typed, re.IGNORECASE)
    parts = match.groups("0") if match else ()
    seconds = sum(int(part) * unit for part, unit in zip(parts, _UNITS.values(), strict=False))
    if not seconds:
        raise ChoiceError(f"{duration!s:.40} is not a time. Try 30m, 90s or 1h30m")
    return float(seconds)


_FOR_AUTO = [name for name, one in FILTERS.items() if not one.with_numbers]
# The fields are the entries, so mypy does not know them.
_Fields = cast("Any", namedtuple)("_Fields", CHOICE, defaults=[one.default for one in CHOICE.values()])  # noqa: PYI024


class Options(_Fields):  # type: ignore[misc, valid-type]
    """The options of a choice. `str` returns them as typed after `%gpus`.

    It raises ChoiceError or TypeError if a value is invalid.
    """

    __slots__ = ()

    def __new__(cls, **given: Unpack[ChoiceOptions]) -> Self:
        check_names(given, CHOICE)
        checked = {name: CHOICE[name].check(value) for name, value in given.items()}
        return cast("Self", super().__new__(cls, **checked))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Options:
        """Return those options of a choice that a line has, which can have other options."""
        return cls(**{name: value for name, value in values.items() if name in CHOICE})

    @classmethod
    def saved(cls, saved: Mapping[str, Any]) -> Options:
        """Return the options that were saved. Raise ChoiceError if they are invalid."""
        try:
            return cls(**saved)
        except TypeError:
            raise ChoiceError("its file cannot be read.") from None

    def given(self) -> dict[str, Any]:
        """Return the options that are given, by their names in Python."""
        values = self._asdict().items()
        return {name: value for name, value in values if value is not None and value is not False}

    def without(self, *names: str) -> Options:
        """Return the options without some of them."""
        found: Options = self._replace(**{name: CHOICE[name].default for name in names})
        return found

    def __str__(self) -> str:
        given = [(CHOICE[name].name, value) for name, value in self.given().items() if name != "by"]
        return "".join(f" {name}" if value is True else f" {name} {value}" for name, value in given)

    @property
    def filters(self) -> str:
        """The options that filter the GPUs of `auto`, as typed. Empty if none is given."""
        return str(self.without(*(CHOICE.keys() - FILTERS)))

    @property
    def for_auto(self) -> str:
        """The filters that do not go with GPU numbers, as typed. Empty if none is given."""
        return str(self.without(*(name for name, one in CHOICE.items() if name not in _FOR_AUTO)))

    @property
    def least(self) -> int | None:
        """The bytes that must be free. None without `min_free`."""
        return None if self.min_free is None else read_size(self.min_free)

    @property
    def to_save(self) -> dict[str, Any]:
        """The options that also work with named GPUs, for `restart.saved`."""
        return self.without(*_FOR_AUTO).given()


def check_names(given: Iterable[str], known: Collection[str]) -> None:
    """Raise TypeError for the first name that is not known."""
    for name in given:
        if name not in known:
            near = nearest_option(name, known)
            hint = f" Did you mean {near}?" if near else ""
            raise wrong_argument(f"There is no option {name!r:.40}.{hint}")


def in_signature(options: type) -> Callable[[_Function], _Function]:
    """Write the options of a class into the signature and the docstring of a function with `**options`."""

    def decorate(function: _Function) -> _Function:
        signature, entries = inspect.signature(function), []
        *parameters, _ = signature.parameters.values()
        for name, annotation in get_type_hints(options).items():
            one, kind = CHOICE[name], inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(name, kind, default=one.default, annotation=annotation))
            values = f"{one.takes}." if one.kind in TYPICAL else ""
            text = " ".join(filter(None, (f"{one.help[0].upper()}{one.help[1:]}.", values, one.more)))
            entries.append(f"    {name}\n{textwrap.indent(textwrap.fill(text, 100), ' ' * 8)}\n")
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        rest = "    **options\n"
        function.__doc__ = (function.__doc__ or "").replace(rest, f"{''.join(entries)}{rest}")
        return function

    return decorate


def split_request(typed: str) -> tuple[str, Options]:
    """Split a text after `%gpus` into the GPUs and the panel's options behind them, written as `str` does.

    It raises ChoiceError for an option that the panel does not have, or with an invalid value.
    """
    devices, *given = re.split(" (?=--)", typed)
    there = {one.name: one for one in CHOICE.values() if one.in_panel}
    values: dict[str, Any] = {}
    for name, space, value in (one.partition(" ") for one in given):
        if name not in there or bool(space) is (there[name].kind is Kind.FLAG):
            raise ChoiceError(f"{name} is not an option of the panel, or lacks its value.")
        values[there[name].attribute] = value if space else True
    return devices, Options(**values)


def plan_memory(
    devices: tuple[Device, ...], *, growth: bool, limit: str | int | None
) -> MemorySettings | None:
    """Return the settings of `--growth` and `--memory-limit` for the chosen devices. None without them.

    It raises ChoiceError without a device, or if the limit is not a size, is too small, or exceeds a device.
    """
    if not growth and limit is None:
        return None
    from gpu_magic.frameworks.base import MemorySettings  # rarely needed

    if not devices:
        asked = "--growth" if limit is None else f"--memory-limit {limit}"
        raise ChoiceError(f"{asked} needs GPUs.", ways=[f"all {asked}"])
    if limit is None:
        return MemorySettings(growth=True, gpus=len(devices))
    size, largest = read_size(limit) or 0, 0
    if size < _LEAST:
        better = size_meant(limit, "8GB")
        raise ChoiceError(
            f"--memory-limit {limit} is too small for a framework to start. Try --memory-limit {better}"
        )
    for device in devices:
        if device.memory_total is UNKNOWN:
            raise ChoiceError(f"{device.label} does not report its memory, so it cannot be limited.")
        if size > device.memory_total:
            there = bytes_text(device.memory_total)
            raise ChoiceError(f"--memory-limit {limit} is more than {device.label} has ({there}).")
        largest = max(largest, device.memory_total)
    return MemorySettings(growth, size, size / largest, len(devices), limit)
