"""The CUDA driver, called with ctypes. The structures and numbers are those of cuda.h (CUDA 13.0)."""

from __future__ import annotations

import ctypes
import time
from typing import Any, NamedTuple

from tests.gpu.claim import NotTriedError

__all__ = ["LIVE", "Cuda", "CudaProcess", "LockArguments", "Memory", "Step", "answer_now", "digits"]

LIVE = ("not loaded", "not started")  # answers of `answer_now` while CUDA has not started
_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_LOCK_MS = 10_000  # for the work that the process has asked the GPU for


class Cuda:
    """The driver's library, loaded and not started."""

    def __init__(self) -> None:
        self.library: Any = ctypes.CDLL("libcuda.so.1")

    def init(self) -> int:
        """Call cuInit, and return its code."""
        return int(self.library.cuInit(0))

    def count_answer(self) -> int:
        """Return the code of cuDeviceGetCount."""
        return int(self.library.cuDeviceGetCount(ctypes.byref(ctypes.c_int())))

    def count(self) -> int:
        """Return the number of devices; -1 if the driver does not return it."""
        count = ctypes.c_int()
        return count.value if self.library.cuDeviceGetCount(ctypes.byref(count)) == 0 else -1

    def version_answer(self) -> int:
        """Return the code of cuDriverGetVersion."""
        return int(self.library.cuDriverGetVersion(ctypes.byref(ctypes.c_int())))

    def uuids(self) -> list[str]:
        """Return the 32 hexadecimal digits of the UUID of `cuda:0`, `cuda:1`, …"""
        found = []
        for ordinal in range(max(0, self.count())):
            device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
            self.library.cuDeviceGet(ctypes.byref(device), ordinal)
            get = getattr(self.library, "cuDeviceGetUuid_v2", None) or self.library.cuDeviceGetUuid
            if get(ctypes.byref(raw), device) == 0:
                found.append(bytes(raw).hex())
        return found

    def device_of(self, pointer: int) -> int:
        """Return the ordinal of the device that memory is on; -1 if the driver does not return it."""
        ordinal = ctypes.c_int(-1)
        self.library.cuPointerGetAttribute(ctypes.byref(ordinal), _DEVICE_ORDINAL, ctypes.c_uint64(pointer))
        return ordinal.value

    def contexts(self) -> list[int]:
        """Return the devices whose primary context is open, by their ordinals."""
        found = []
        for ordinal in range(max(0, self.count())):
            flags, is_open = ctypes.c_uint(), ctypes.c_int()
            self.library.cuDevicePrimaryCtxGetState(ordinal, ctypes.byref(flags), ctypes.byref(is_open))
            found += [ordinal] if is_open.value else []
        return found

    def error_text(self, code: int) -> str:
        """Return a code in words: `out of memory (2)`."""
        text = ctypes.c_char_p()
        self.library.cuGetErrorString(code, ctypes.byref(text))
        return f"{(text.value or b'unknown to the driver').decode()} ({code})"


class Memory:
    """Bytes of the first visible GPU, filled with a word. Creating one starts CUDA, and opens a context."""

    WORD = 0x5EED5EED

    def __init__(self, nbytes: int) -> None:
        self._cuda, self._nbytes = Cuda(), nbytes
        self._must(self._cuda.init())
        driver, device, context = self._cuda.library, ctypes.c_int(), ctypes.c_void_p()
        self._must(driver.cuDeviceGet(ctypes.byref(device), 0))
        self._must(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        self._must(driver.cuCtxSetCurrent(context))
        self._address = self._allocated(nbytes)
        words = ctypes.c_size_t(nbytes // 4)
        self._must(driver.cuMemsetD32_v2(self._address, ctypes.c_uint(self.WORD), words))

    def is_same(self) -> bool:
        """Return whether the first and the last word are as they were."""
        places = self._address.value, self._address.value + self._nbytes - 4
        return [self._word(place) for place in places] == [self.WORD] * 2

    def use(self) -> None:
        """Allocate some bytes, and free them."""
        self._must(self._cuda.library.cuMemFree_v2(self._allocated(1 << 20)))

    def _allocated(self, nbytes: int) -> ctypes.c_uint64:
        address = ctypes.c_uint64()
        self._must(self._cuda.library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes)))
        return address

    def _word(self, place: int) -> int:
        word = ctypes.c_uint()
        size = ctypes.c_size_t(ctypes.sizeof(word))
        self._must(self._cuda.library.cuMemcpyDtoH_v2(ctypes.byref(word), ctypes.c_uint64(place), size))
        return word.value

    def _must(self, code: int) -> None:
        if code:
            raise RuntimeError(self._cuda.error_text(code))


class Step(NamedTuple):
    """What came of a step."""

    name: str
    code: int
    seconds: float
    error: str  # in words; empty for none

    def __str__(self) -> str:
        return f"{self.name}: {self.error}" if self.error else f"{self.name} {self.seconds:.2f} s"


class LockArguments(ctypes.Structure):
    """CUcheckpointLockArgs: 64 bytes. What is reserved must be zero."""

    _fields_ = (
        ("timeout_ms", ctypes.c_uint),
        ("reserved0", ctypes.c_uint),
        ("reserved1", ctypes.c_uint64 * 7),
    )


class CudaProcess:
    """The CUDA state of a process, which `cuCheckpointProcess…` change (driver 570 and newer)."""

    STATES = ("running", "locked", "checkpointed", "failed")  # CUprocessState

    def __init__(self, pid: int) -> None:
        self._cuda, self._pid = Cuda(), ctypes.c_int(pid)
        if not hasattr(self._cuda.library, "cuCheckpointProcessLock"):
            raise NotTriedError("the driver here has no cuCheckpointProcessLock. 570 and newer have it")
        code = self._cuda.init()  # restoring needs it, or persistence mode
        if code:
            raise NotTriedError(f"cuInit here: {self._cuda.error_text(code)}")

    def state(self) -> str:
        """Return the state in a word, or why the driver does not tell it."""
        state = ctypes.c_int()
        code = self._cuda.library.cuCheckpointProcessGetState(self._pid, ctypes.byref(state))
        if code:
            return f"unknown: {self._cuda.error_text(code)}"
        return dict(enumerate(self.STATES)).get(state.value, str(state.value))

    def do(self, step: str) -> Step:
        """Lock, checkpoint, restore or unlock the process."""
        arguments = ctypes.byref(LockArguments(timeout_ms=_LOCK_MS)) if step == "lock" else None
        call = getattr(self._cuda.library, f"cuCheckpointProcess{step.capitalize()}")
        began = time.monotonic()
        code = int(call(self._pid, arguments))
        return Step(step, code, time.monotonic() - began, "" if code == 0 else self._cuda.error_text(code))


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
