"""Asks whether CUDA, or AMD's ROCm, has started in this process, without loading or starting its library.

The library is looked up with RTLD_NOLOAD. If nothing has loaded it, nothing has started it.

CUDA: `cuDeviceGetCount` returns CUDA_ERROR_NOT_INITIALIZED (3) before cuInit is called. After cuInit, it
returns 0, or CUDA_ERROR_NO_DEVICE (100) if CUDA_VISIBLE_DEVICES names no GPU (CUDA driver API,
"Initialization"). Any other result means that CUDA cannot be used. For example, the CUDA toolkit's stub of
the library returns 34. `cuDriverGetVersion` is not a test, because it also works before cuInit.

ROCm: `hsa_system_get_info` returns HSA_STATUS_ERROR_NOT_INITIALIZED (0x100B) before hsa_init is called (HSA
Runtime Programmer's Reference Manual 1.2, "hsa_system_get_info"). HIP calls hsa_init at its first use (clr,
rocdevice.cpp, `Device::init`). An open /dev/kfd is no sign of a start, because AMD SMI also opens it for a
moment (rocm_smi_kfd.cc, `get_used_memory`).

A child that is forked after the start can use neither, and CUDA's driver returns 3 again in it. So the driver
is asked before every fork, and the PID in which it had started is kept: see also triton #10443. For this,
`import gpu_magic` loads this module.
"""

from __future__ import annotations

import enum
import os
import sys
from functools import cache
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, Literal

from gpu_magic.process.environment import variables_now

if TYPE_CHECKING:
    from gpu_magic.process.mask import Variables

__all__ = ["Driver", "State", "driver", "probe", "use_driver"]

_SUCCESS, _NOT_INITIALIZED, _NO_DEVICE = 0, 3, 100
_HSA_VERSION_MAJOR = 0  # HSA_SYSTEM_INFO_VERSION_MAJOR, 16 bits
# A flag in /proc/self/stat: forked, and no exec since (Linux, include/linux/sched.h).
_PF_FORKNOEXEC = 0x40


class State(enum.Enum):
    """Whether this process can still change its visible devices."""

    ABSENT = "absent"  # the CUDA driver library is not loaded
    LIVE = "live"  # loaded, but not started
    FROZEN = "frozen"  # started: CUDA does not read CUDA_VISIBLE_DEVICES again
    FORKED = "forked"  # a child that was forked after the start: CUDA cannot be used here
    NO_WAY_TO_ASK = "unknown"  # this platform gives no way to ask
    UNCLEAR = "unclear"  # forked with the library loaded: CUDA may have started before the fork
    BROKEN = "broken"  # the library reports that CUDA cannot be used

    @property
    def can_change(self) -> bool:
        return self not in (State.FROZEN, State.FORKED)


class Driver:
    """The CUDA driver library, once something has loaded it. It is never unloaded again."""

    vendor: Literal["nvidia", "amd"] = "nvidia"
    started_with: Variables  # when CUDA was first seen to have started
    _names: tuple[str, ...] = ("libcuda.so.1",)

    def __init__(self) -> None:
        self.error = 0  # the driver's last answer, if it means that CUDA cannot be used
        self.library: Any = None  # once it is loaded
        self.started_in: int | None = None  # the PID in which CUDA was first seen to have started
        # If a forked process has the library before gpu_magic, CUDA may have started before the fork.
        self._may_be_forked = self._find() is not None and _is_forked_process()

    def is_started(self) -> bool:
        """Return whether CUDA has started, in this process or in one that it was forked from.

        A call takes 1 µs, but before the library is loaded, 20 µs or more if the process has used new memory.
        """
        if self.started_in is None and (library := self._find()) is not None and self._ask(library):
            self.started_in, self.started_with = os.getpid(), variables_now()
        return self.started_in is not None

    def state(self) -> State:
        if sys.platform == "win32":
            return State.NO_WAY_TO_ASK
        if self.is_started():
            return State.FORKED if self.started_in not in (None, os.getpid()) else State.FROZEN
        if self.error:
            return State.BROKEN
        if self.library is None:
            return State.ABSENT
        return State.UNCLEAR if self._may_be_forked else State.LIVE

    def devices(self) -> tuple[str, ...]:
        """Return the UUIDs of `cuda:0`, `cuda:1`, …, if CUDA has started in this process.

        They lack the "GPU-" or "MIG-" of NVML: `8f3a1c52-…`. A UUID is empty if the driver does not give it.
        """
        if self.state() is not State.FROZEN:
            return ()
        import ctypes
        from uuid import UUID

        library, count, found = self.library, ctypes.c_int(), list[str]()
        if library.cuDeviceGetCount(ctypes.byref(count)) != _SUCCESS:
            return ()  # CUDA_VISIBLE_DEVICES named no device
        # Version 2 (CUDA 11.4) gives a MIG instance's own UUID, version 1 that of its GPU.
        get_uuid = getattr(library, "cuDeviceGetUuid_v2", None) or library.cuDeviceGetUuid
        for ordinal in range(count.value):
            device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
            if library.cuDeviceGet(ctypes.byref(device), ordinal) != _SUCCESS:
                break
            is_given = get_uuid(ctypes.byref(raw), device) == _SUCCESS
            found.append(str(UUID(bytes=bytes(raw))) if is_given else "")
        return tuple(found)

    def _ask(self, library: Any) -> bool:
        import ctypes

        answer: int = library.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))
        self.error = answer if answer not in (_SUCCESS, _NOT_INITIALIZED, _NO_DEVICE) else 0
        return answer in (_SUCCESS, _NO_DEVICE)

    def _find(self) -> Any:
        global _searched_at  # noqa: PLW0603 - the drivers of a process
        if self.library is not None or sys.platform == "win32":
            return self.library
        if _searched_at is None or _searched_at != _page_faults():
            _absent.clear()
        if self not in _absent:
            from _ctypes import dlopen

            for name in self._names:
                try:
                    # CDLL takes three times as long if the library is not loaded.
                    handle = dlopen(name, os.RTLD_NOLOAD | os.RTLD_LAZY)
                except OSError:
                    continue
                import ctypes

                self.library = ctypes.CDLL(name, handle=handle)
                break
            else:
                _absent.add(self)
            _searched_at = _page_faults()
        return self.library


class _RocmRuntime(Driver):
    """The library of AMD's ROCm runtime, once HIP or other code has loaded it.

    It does not report the devices of this process. `started_with` shows which devices they are.
    """

    vendor = "amd"
    _names = ("libhsa-runtime64.so.1", "libhsa-runtime64.so")  # the second in PyTorch's own packages

    def is_started(self) -> bool:
        """Search only if amdsmi is installed. Else no AMD GPU can be chosen, and a search takes 60 µs."""
        return (self.library is not None or _has_amdsmi()) and super().is_started()

    def _ask(self, library: Any) -> bool:
        import ctypes

        answer: int = library.hsa_system_get_info(_HSA_VERSION_MAJOR, ctypes.byref(ctypes.c_uint16()))
        return answer == _SUCCESS


@cache
def _has_amdsmi() -> bool:
    return PathFinder.find_spec("amdsmi") is not None


def _page_faults() -> tuple[int, int] | None:
    """Return how often this process has touched new memory. A library cannot be loaded without.

    None if the system does not count that, as gVisor.
    """
    from resource import RUSAGE_SELF, getrusage

    used = getrusage(RUSAGE_SELF)
    count = used.ru_minflt + used.ru_majflt
    return (os.getpid(), count) if count else None


def _is_forked_process() -> bool:
    """Return whether this process was forked without an exec since (Linux). False if unknown."""
    try:
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
            return bool(int(file.read().rpartition(b")")[2].split()[6]) & _PF_FORKNOEXEC)
    except (OSError, ValueError, IndexError):
        return False


# The drivers whose library was not there, and `_page_faults` after the last search.
_absent: set[Driver] = set()
_searched_at: tuple[int, int] | None = None
_cuda = _driver = Driver()
_rocm = _RocmRuntime()


def driver() -> Driver:
    """Return the driver of this process, or within `testing.simulate`, a simulated driver.

    It is ROCm's runtime if other code has loaded that runtime, and CUDA has not started.
    """
    if _driver is _cuda and _cuda.started_in is None:
        _rocm.is_started()
        if _rocm.library is not None and not _cuda.is_started():
            return _rocm
    return _driver


def use_driver(other: Driver) -> Driver:
    """Ask another driver from now on. Return the previous driver."""
    global _driver
    before, _driver = _driver, other
    return before


def probe() -> State:
    """Ask the driver now."""
    return driver().state()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=probe)
