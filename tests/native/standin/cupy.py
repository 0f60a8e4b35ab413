"""Stands in for CuPy where no GPU is: four devices, a current one for each thread, and arrays that know theirs.

Written after CuPy 13's documentation (cupy.cuda.Device, cupy.cuda.runtime); tests/gpu has no CuPy.
"""

import os
import threading
import types

import numpy as np

_here = threading.local()


class CUDARuntimeError(RuntimeError):
    pass


def getDeviceCount():  # noqa: N802 - CUDA's name
    if os.environ.get("CUPY_STANDIN_BROKEN"):
        raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
    return 4


def getDevice():  # noqa: N802
    return getattr(_here, "device", 0)


class Device:
    def __init__(self, device=None):
        self.id = getDevice() if device is None else device
        self._before = []

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


class ndarray:  # noqa: N801
    def __init__(self, array, memory=None, device=None):
        self._array = array
        self.device = device or Device()
        self.nbytes = array.nbytes
        memory = memory or types.SimpleNamespace(size=array.nbytes, ptr=id(array))
        self.data = types.SimpleNamespace(mem=memory)

    def __getitem__(self, key):
        return ndarray(self._array[key], self.data.mem, self.device)


def ones(shape):
    return ndarray(np.ones(shape))


runtime = types.SimpleNamespace(
    getDeviceCount=getDeviceCount, getDevice=getDevice, CUDARuntimeError=CUDARuntimeError
)
cuda = types.SimpleNamespace(Device=Device, runtime=runtime)
