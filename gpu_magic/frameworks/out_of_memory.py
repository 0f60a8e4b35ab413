"""Reads how much memory was asked for from the errors of frameworks."""

from __future__ import annotations

import re

__all__ = ["wanted_in"]

# "Tried to allocate 20.00 GiB." (PyTorch 2.13, c10/cuda/CUDACachingAllocator.cpp), "trying to allocate
# 8589934592 bytes" (XLA), "Out of memory allocating 1,024 bytes" (CuPy 13).
_WANTED = re.compile(r"allocat(?:e|ing) ([0-9][0-9,]{0,30}(?:\.[0-9]{1,9})?) ?(bytes|KiB|MiB|GiB|TiB)")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def wanted_in(text: str) -> int | None:
    """Return how many bytes an error says were asked for; None where it does not."""
    found = _WANTED.search(text)
    return round(float(found[1].replace(",", "")) * _UNITS[found[2]]) if found else None
