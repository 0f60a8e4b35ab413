"""Reads how long to wait: `30m`, `90s`, `1h30m`, or a number of seconds."""

from __future__ import annotations

import re

from gpu_magic.errors import ChoiceError
from gpu_magic.spelling import option

__all__ = ["duration_text", "read_seconds"]

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}  # seconds
_NAMES = (r"d(?:ays?)?", r"h(?:(?:ou)?rs?)?", r"m(?:in(?:ute)?s?)?", r"s(?:ec(?:ond)?s?)?")
_PARTS = re.compile(r"\s*".join(rf"(?:(\d{{1,6}})\s*{name})?" for name in _NAMES), re.IGNORECASE)


def read_seconds(duration: str | float, name: str = "wait") -> float:
    """Return the seconds of `30m`, `1h30m`, `2d`, `30 min`; a number is seconds.

    Parameters
    ----------
    duration
        What was given.
    name
        The option that it was given to.

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
        raise ChoiceError(
            f"{option(name, duration)} is no time; try {option(name, '30m')}, or 90s, or 1h30m."
        )
    return float(seconds)


def duration_text(seconds: float) -> str:
    """Return a duration as people say it, rounded down: `45 s`, `1 min 30 s`, `1 h 30 min`, `0.5 s`."""
    if 0 < seconds < 1:
        return f"{seconds:.1g} s"
    hours, rest = divmod(int(seconds), 3600)
    minutes, left = divmod(rest, 60)
    parts = [f"{hours} h"] * bool(hours) + [f"{minutes} min"] * bool(minutes)
    return " ".join(parts + [f"{left} s"] * bool(not parts or (left and not hours)))
