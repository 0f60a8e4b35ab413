"""UNKNOWN: a figure that the driver does not give."""

from __future__ import annotations

import enum
from typing import Final

__all__ = ["UNKNOWN", "Unknown"]


class Unknown(enum.Enum):
    """The type of `UNKNOWN`, so that type checkers see `x is UNKNOWN` as a test."""

    UNKNOWN = "UNKNOWN"

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        # `if gpu.status.utilization:` would read "busy" or "idle" into a figure that is neither.
        raise TypeError("UNKNOWN is neither true nor false: test it with `is UNKNOWN`")


UNKNOWN: Final = Unknown.UNKNOWN
