"""Whether this process can still change its visible devices."""

from __future__ import annotations

import enum
import sys

from gpu_magic.process import is_forked, is_initialized, is_loaded

__all__ = ["State", "probe"]


class State(enum.Enum):
    """Whether this process can still change its visible devices."""

    ABSENT = "absent"  # the CUDA driver library is not loaded
    LIVE = "live"  # loaded, and not initialized
    FROZEN = "frozen"  # initialized: CUDA_VISIBLE_DEVICES was read, and is not read again
    FORKED = "forked"  # a child forked after that: CUDA can't be used here
    UNKNOWN = "unknown"  # this platform gives no way to ask

    @property
    def can_change(self) -> bool:
        return self in (State.ABSENT, State.LIVE, State.UNKNOWN)


def probe() -> State:
    """Ask the driver now."""
    if sys.platform == "win32":
        return State.UNKNOWN
    if is_initialized():
        return State.FORKED if is_forked() else State.FROZEN
    return State.LIVE if is_loaded() else State.ABSENT
