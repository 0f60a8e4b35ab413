"""Reads how long to wait: `30m`, `90s`, `1h30m`, or a number of seconds."""

from __future__ import annotations

import re

from gpu_magic.errors import ChoiceError

__all__ = ["duration_text", "read_seconds"]

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}  # seconds
_PARTS = re.compile(r"\s*".join(rf"(?:(\d{{1,6}})\s*{unit})?" for unit in _UNITS), re.IGNORECASE)


def read_seconds(duration: str | float) -> float:
    """Return the seconds of `30m`, `1h30m`, `2d`; a number is seconds.

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
        raise ChoiceError(f"--wait {duration} is no time; try --wait 30m, or 90s, or 1h30m.")
    return float(seconds)


def duration_text(seconds: float) -> str:
    """Return a duration as people say it: `45 s`, `3 min`, `1 h 30 min`."""
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004
        return f"{whole} s"
    hours, minutes = divmod(whole // 60, 60)
    return " ".join([f"{hours} h"] * bool(hours) + [f"{minutes} min"] * bool(minutes or not hours))
