"""The CUDA driver, called with ctypes."""

from __future__ import annotations

import ctypes
from typing import Any

__all__ = ["Cuda", "answer_now"]


class Cuda:
    """The driver's library, loaded and not started."""

    def __init__(self) -> None:
        self._library: Any = ctypes.CDLL("libcuda.so.1")

    def init(self) -> int:
        """Call cuInit, and return its code."""
        return int(self._library.cuInit(0))

    def count_answer(self) -> int:
        """Return the code of cuDeviceGetCount."""
        return int(self._library.cuDeviceGetCount(ctypes.byref(ctypes.c_int())))

    def count(self) -> int:
        """Return the number of devices; -1 if the driver does not return it."""
        count = ctypes.c_int()
        return count.value if self._library.cuDeviceGetCount(ctypes.byref(count)) == 0 else -1

    def version_answer(self) -> int:
        """Return the code of cuDriverGetVersion."""
        return int(self._library.cuDriverGetVersion(ctypes.byref(ctypes.c_int())))

    def uuids(self) -> list[str]:
        """Return the 32 hexadecimal digits of the UUID of `cuda:0`, `cuda:1`, …"""
        found = []
        for ordinal in range(max(0, self.count())):
            device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
            self._library.cuDeviceGet(ctypes.byref(device), ordinal)
            get = getattr(self._library, "cuDeviceGetUuid_v2", None) or self._library.cuDeviceGetUuid
            if get(ctypes.byref(raw), device) == 0:
                found.append(bytes(raw).hex())
        return found


def digits(uuid: object) -> str:
    """Return the 32 hexadecimal digits of a UUID as NVML writes it."""
    return str(uuid).partition("-")[2].replace("-", "").lower()


def answer_now() -> str:
    """Return the driver's state now, without loading the driver: "not loaded", "not started", or "started"."""
    import os

    try:
        handle = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return "not loaded"
    code = handle.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))
    return {3: "not started", 0: "started", 100: "started without a GPU"}.get(code, f"answers {code}")
