"""Asks the CUDA driver library whether it was initialised in this process. Loads and starts nothing.

The library is looked up with RTLD_NOLOAD: where nobody has loaded it, nobody has started CUDA. Where it is
loaded, `cuDeviceGetCount` answers CUDA_ERROR_NOT_INITIALIZED (3) until cuInit was called and never after
(CUDA driver API, "Initialization"). `cuDriverGetVersion` would not do: it answers before cuInit too.

In a child forked after cuInit the answer is 3 again, and CUDA can't be used there at all; so the process
that was seen frozen is remembered (see also triton #10443).
"""

from __future__ import annotations

import ctypes
import enum
import os
import sys

if sys.platform != "win32":
    from _ctypes import dlopen

__all__ = ["State", "loaded", "probe"]

_NOT_INITIALIZED = 3


class State(enum.Enum):
    """Whether this process can still change its mask."""

    ABSENT = "absent"  # the CUDA driver is not even loaded
    LIVE = "live"  # loaded, and not initialised
    FROZEN = "frozen"  # initialised: the mask was read, once and for all
    FORKED = "forked"  # a child forked after that: CUDA is unusable here
    UNKNOWN = "unknown"  # this platform gives no way to ask

    @property
    def can_change(self) -> bool:
        return self in (State.ABSENT, State.LIVE, State.UNKNOWN)


class _Driver:
    """The loaded library, once somebody has loaded it; it is never unloaded again."""

    def __init__(self) -> None:
        self.library: ctypes.CDLL | None = None
        self.frozen_in: int | None = None  # the process that was seen frozen

    def find(self) -> ctypes.CDLL | None:
        if self.library is None:
            try:
                # CDLL would do the same, and take three times as long to find nothing.
                handle = dlopen("libcuda.so.1", os.RTLD_NOLOAD | os.RTLD_LAZY)
            except OSError:
                return None
            self.library = ctypes.CDLL("libcuda.so.1", handle=handle)
        return self.library


_driver = _Driver()


def probe() -> State:
    """Tell whether CUDA was initialised in this process.

    It takes about 20 µs while nobody has loaded the driver, and 1 µs once somebody has.
    """
    me = os.getpid()
    if _driver.frozen_in is not None:
        return State.FROZEN if _driver.frozen_in == me else State.FORKED
    if sys.platform == "win32":
        return State.UNKNOWN
    library = _driver.find()
    if library is None:
        return State.ABSENT
    count = ctypes.c_int()
    if library.cuDeviceGetCount(ctypes.byref(count)) == _NOT_INITIALIZED:
        return State.LIVE
    _driver.frozen_in = me
    return State.FROZEN


def loaded() -> ctypes.CDLL | None:
    """Return the library, where `probe` has found that somebody has loaded it."""
    return _driver.library
