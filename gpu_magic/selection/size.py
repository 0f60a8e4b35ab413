"""Reads a size as people write it: `8GB`, `8 GiB`, or a number of bytes."""

from __future__ import annotations

import re

from gpu_magic.text import bytes_text

__all__ = ["read_size", "size_as_typed", "size_meant"]

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)


def read_size(size: str | int) -> int | None:
    """Return the bytes of `8GB` (10 to the 9th each), `8GiB` (2 to the 30th each) or a number, else None."""
    match = _SIZE.fullmatch(str(size).strip())
    if not match or (match[3] and not match[2]):
        return None
    return round(float(match[1]) * (_BINARY if match[3] else _UNITS)[match[2].upper()])


def size_as_typed(size: str | int) -> str:
    """Return a size that `read_size` can read in the unit in which it was typed: `8 GB`."""
    match = _SIZE.fullmatch(str(size).strip())
    unit = match[2].upper() if match else ""
    return (
        f"{match[1]} {unit}{'i' if match[3] else ''}B" if match and unit else bytes_text(read_size(size) or 0)
    )


def size_meant(size: str | int, example: str) -> str:
    """Return the size that was meant by a number without a unit, or with another one: `60GB` for `60`.

    A number of several thousand is in MiB, as nvidia-smi writes it; what names no size is the example.
    """
    match = re.fullmatch(r"\s*([1-9][0-9]{0,6}(?:\.[0-9]{1,2})?)(?:[^0-9.%][^%]*)?", str(size))
    return f"{match[1]}{'GB' if float(match[1]) < 1000 else 'MiB'}" if match else example  # noqa: PLR2004
