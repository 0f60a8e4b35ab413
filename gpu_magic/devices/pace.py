"""How long gpu_magic pauses between two looks at the machine. GPU_MAGIC_PACE shortens the pauses."""

from __future__ import annotations

import os
from contextlib import suppress

__all__ = ["paced"]

_SHORTEST = 0.01  # of a pause: more would keep a CPU core busy


def paced(seconds: float) -> float:
    """Return a pause in seconds: `seconds` times GPU_MAGIC_PACE, if that is a number from 0.01 to 1."""
    with suppress(ValueError):
        pace = float(os.environ.get("GPU_MAGIC_PACE", ""))
        if _SHORTEST <= pace <= 1:
            return seconds * pace
    return seconds
