"""The libraries that are asked whether CUDA, or AMD's ROCm, was initialized in this process.

They are looked up with RTLD_NOLOAD: they are neither loaded nor initialized here, and where nothing has
loaded them, nothing has initialized them.

CUDA: `cuDeviceGetCount` returns CUDA_ERROR_NOT_INITIALIZED (3) until cuInit was called, and after it 0, or
CUDA_ERROR_NO_DEVICE (100) where CUDA_VISIBLE_DEVICES names no GPU (CUDA driver API, "Initialization"). Any
other answer means that CUDA can't be used: the CUDA toolkit's stub of the library gives 34, for example.
`cuDriverGetVersion` is not a test: it answers before, too.

ROCm: `hsa_system_get_info` returns HSA_STATUS_ERROR_NOT_INITIALIZED (0x100B) until hsa_init was called (HSA
Runtime Programmer's Reference Manual 1.2, "hsa_system_get_info"), which HIP does when it is first used (clr,
rocdevice.cpp, `Device::init`). An open /dev/kfd is no such sign: AMD SMI opens it as well, for a moment
(rocm_smi_kfd.cc, `get_used_memory`).

In a child forked after that the answer of CUDA's driver is 3 again, and neither can be used there. So the
process in which it was seen to be initialized is remembered.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import ctypes

__all__ = ["Driver", "RocmRuntime", "Values", "values_now"]

# The values of `process.mask.Variables`, which takes longer to load; None: not set.
Values = tuple[str | None, ...]

# As in `process.mask`.
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")

_SUCCESS, _NOT_INITIALIZED, _NO_DEVICE = 0, 3, 100
_HSA_VERSION_MAJOR = 0  # HSA_SYSTEM_INFO_VERSION_MAJOR, 16 bits
# A flag in /proc/self/stat: forked, and has not run another program since (Linux, include/linux/sched.h).
_PF_FORKNOEXEC = 0x40


def values_now() -> Values:
    """Return the variables that say which GPUs this process sees, as they are now."""
    return tuple(map(os.environ.get, _VARIABLES))


class Driver:
    """The CUDA driver library, once something has loaded it. It is never unloaded again.

    Attributes
    ----------
    runtime
        What it starts, as people call it.
    vendor
        Whose GPUs it is for.
    error
        What it answered last, where that means that CUDA can't be used; 0 for anything else.
    began_with
        The variables that say which GPUs this process sees, when it was first seen to be initialized.

    """

    runtime = "CUDA"
    vendor: Literal["nvidia", "amd"] = "nvidia"
    began_with: Values = ()
    _names: tuple[str, ...] = ("libcuda.so.1",)

    def __init__(self) -> None:
        self.error = 0
        self._library: ctypes.CDLL | None = None
        self._initialized_in: int | None = None  # the process in which CUDA was seen to be initialized
        # A library that is there before us in a forked process can have come from the process before.
        self._may_be_forked_with = os.getpid() if self._find() is not None else None

    def is_loaded(self) -> bool:
        """Return whether the library was seen to be loaded when CUDA was last asked for."""
        return self._library is not None

    def was_initialized(self) -> bool:
        """Return whether CUDA was seen to be initialized when it was last asked; it is not asked again."""
        return self._initialized_in is not None

    def is_initialized(self) -> bool:
        """Return whether CUDA was initialized, in this process or in one that it was forked from.

        It takes about 20 µs until the library is loaded, and 1 µs from then on.
        """
        if self._initialized_in is not None:
            return True
        library = self._find()
        if library is None:
            return False
        if self._ask(library):
            self._initialized_in, self.began_with = os.getpid(), values_now()
        return self._initialized_in is not None

    def _ask(self, library: ctypes.CDLL) -> bool:
        """Ask the library whether it was initialized."""
        import ctypes

        answer = library.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))
        self.error = answer if answer not in (_SUCCESS, _NOT_INITIALIZED, _NO_DEVICE) else 0
        return answer in (_SUCCESS, _NO_DEVICE)

    def is_forked(self) -> bool:
        """Return whether CUDA was initialized before this process was forked, and can't be used in it."""
        return self._initialized_in not in (None, os.getpid())

    def may_be_forked(self) -> bool:
        """Return whether that may be so: the library was loaded, perhaps before the fork, and we were not."""
        return self._may_be_forked_with == os.getpid() and _is_forked_process()

    def devices(self) -> tuple[str, ...]:
        """Return what CUDA was initialized with in this process.

        Returns
        -------
        tuple[str, ...]
            For `cuda:0`, `cuda:1`, … the 16 bytes of the UUID as text: `8f3a1c52-…`. The driver gives it
            without the "GPU-" or "MIG-" of NVML; the text is empty where it does not answer. There are none
            where CUDA is not initialized, or was initialized without any device.

        """
        if not self.is_initialized() or self.is_forked():
            return ()
        import ctypes

        library: Any = self._library
        count = ctypes.c_int()
        if library.cuDeviceGetCount(ctypes.byref(count)) != _SUCCESS:
            return ()  # CUDA_VISIBLE_DEVICES named no device
        found = []
        for ordinal in range(count.value):
            device = ctypes.c_int()
            if library.cuDeviceGet(ctypes.byref(device), ordinal) != _SUCCESS:
                break
            found.append(_uuid(library, device))
        return tuple(found)

    def _find(self) -> ctypes.CDLL | None:
        if self._library is None and sys.platform != "win32":
            from _ctypes import dlopen

            for name in self._names:
                try:
                    # CDLL would do the same, and take three times as long to find nothing.
                    handle = dlopen(name, os.RTLD_NOLOAD | os.RTLD_LAZY)
                except OSError:
                    continue
                import ctypes

                self._library = ctypes.CDLL(name, handle=handle)
                break
        return self._library


class RocmRuntime(Driver):
    """The library of AMD's ROCm runtime, once something has loaded it, as HIP does."""

    runtime = "ROCm"
    vendor = "amd"
    _names = ("libhsa-runtime64.so.1", "libhsa-runtime64.so")  # the second in PyTorch's own packages

    def is_initialized(self) -> bool:
        """Return whether ROCm was initialized, where amdsmi is installed; elsewhere no AMD GPU is chosen.

        Else it would be looked for in vain after each cell, which takes 60 µs.
        """
        return (self.is_loaded() or _has_amdsmi()) and super().is_initialized()

    def devices(self) -> tuple[str, ...]:
        """Return nothing: what HIP was initialized with is told by the variables that it began with."""
        return ()

    def _ask(self, library: ctypes.CDLL) -> bool:
        import ctypes

        answer: int = library.hsa_system_get_info(_HSA_VERSION_MAJOR, ctypes.byref(ctypes.c_uint16()))
        return answer == _SUCCESS


@cache
def _has_amdsmi() -> bool:
    return PathFinder.find_spec("amdsmi") is not None


def _is_forked_process() -> bool:
    """Return whether this process was forked and runs the same program since (Linux); False if unknown."""
    try:
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
            flags = int(file.read().rpartition(b")")[2].split()[6])
    except (OSError, ValueError, IndexError):
        return False
    return bool(flags & _PF_FORKNOEXEC)


def _uuid(library: Any, device: ctypes.c_int) -> str:
    import ctypes

    raw = (ctypes.c_ubyte * 16)()
    # Version 2 (CUDA 11.4) gives a MIG instance's own UUID, version 1 that of its GPU.
    get_uuid = getattr(library, "cuDeviceGetUuid_v2", None) or library.cuDeviceGetUuid
    if get_uuid(ctypes.byref(raw), device) != 0:
        return ""
    digits = bytes(raw).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
