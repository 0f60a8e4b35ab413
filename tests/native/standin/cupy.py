"""Stands in for CuPy where no GPU is: four devices, a current one for each thread, and arrays that know theirs.

Written after CuPy 13's documentation (cupy.cuda.Device, cupy.cuda.runtime); tests/gpu has no CuPy.
"""

import os
import threading
import types

import numpy as np

_here = threading.local()
_made = {}  # the bytes of all arrays that were ever made, by their devices


class CUDARuntimeError(RuntimeError):
    pass


def getDeviceCount():  # noqa: N802 - CUDA's name
    runtime.has_started = True
    if os.environ.get("CUPY_STANDIN_BROKEN"):
        raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
    return 4


def getDevice():  # noqa: N802
    runtime.has_started = True
    return getattr(_here, "device", 0)


class Device:
    def __init__(self, device=None):
        self.id = getDevice() if device is None else device
        self._before = []

    def __repr__(self):
        return f"<CUDA Device {self.id}>"

    def __enter__(self):
        self._before.append(getDevice())
        self.use()
        return self

    def __exit__(self, *exc_info):
        _here.device = self._before.pop()

    def use(self):
        if not 0 <= self.id < getDeviceCount():
            raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
        _here.device = self.id
        return self


class Memory:
    def __init__(self, buffer, device):
        self.buffer, self.size, self.device = buffer, buffer.nbytes, device
        self.ptr = buffer.__array_interface__["data"][0]


class MemoryPointer:
    def __init__(self, mem, offset):
        self.mem, self.ptr, self.device = mem, mem.ptr + offset, mem.device

    def __add__(self, offset):
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)


class ndarray:  # noqa: N801
    def __init__(self, shape, dtype=float, memptr=None, strides=None):
        if memptr is None:
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            _made[getDevice()] = _made.get(getDevice(), 0) + size
            memptr = MemoryPointer(Memory(np.empty(size, np.uint8), Device()), 0)
        self.data, self.device = memptr, memptr.device
        offset = memptr.ptr - memptr.mem.ptr
        self._array = np.ndarray(shape, dtype, memptr.mem.buffer, offset, strides)
        self.shape, self.dtype, self.strides = self._array.shape, self._array.dtype, self._array.strides
        self.nbytes = self._array.nbytes

    def __getitem__(self, key):
        part = self._array[key]
        offset = part.__array_interface__["data"][0] - self.data.mem.ptr
        return ndarray(part.shape, part.dtype, MemoryPointer(self.data.mem, offset), part.strides)


def asarray(array):
    if isinstance(array, ndarray) and array.device.id == getDevice():
        return array
    source = array._array if isinstance(array, ndarray) else np.asarray(array)
    made = ndarray(source.shape, source.dtype)
    made._array[...] = source
    return made


def asnumpy(array):
    return array._array.copy()


def ones(shape):
    return asarray(np.ones(shape))


class _Pool:
    def total_bytes(self):
        return _made.get(getDevice(), 0)

    def free_bytes(self):
        return 0

    def free_all_blocks(self):
        pass


_pool = _Pool()


def get_default_memory_pool():
    return _pool


def get_default_pinned_memory_pool():
    return _pool


uint8 = np.uint8
runtime = types.SimpleNamespace(
    has_started=False,  # not of CuPy's: whether CUDA's runtime was called
    getDeviceCount=getDeviceCount,
    getDevice=getDevice,
    CUDARuntimeError=CUDARuntimeError,
    memGetInfo=lambda: (1 << 33, 1 << 34),
)
cuda = types.SimpleNamespace(Device=Device, runtime=runtime, MemoryPointer=MemoryPointer)
