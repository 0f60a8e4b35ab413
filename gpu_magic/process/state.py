"""Whether this process can still change its visible devices."""

from __future__ import annotations

import enum
import sys

from gpu_magic.process import driver

__all__ = ["State", "probe"]


class State(enum.Enum):
    """Whether this process can still change its visible devices."""

    ABSENT = "absent"  # the CUDA driver library is not loaded
    LIVE = "live"  # loaded, and not initialized
    FROZEN = "frozen"  # initialized: CUDA_VISIBLE_DEVICES was read, and is not read again
    FORKED = "forked"  # a child forked after that: CUDA can't be used here
    UNKNOWN = "unknown"  # this platform gives no way to ask
    UNCLEAR = "unclear"  # forked with the library loaded: it may have been initialized before the fork
    BROKEN = "broken"  # the library answers that CUDA can't be used

    @property
    def can_change(self) -> bool:
        return self not in (State.FROZEN, State.FORKED)


def probe() -> State:
    """Ask the driver now."""
    if sys.platform == "win32":
        return State.UNKNOWN
    cuda = driver()
    if cuda.is_initialized():
        return State.FORKED if cuda.is_forked() else State.FROZEN
    if cuda.error:
        return State.BROKEN
    if not cuda.is_loaded():
        return State.ABSENT
    return State.UNCLEAR if cuda.may_be_forked() else State.LIVE
