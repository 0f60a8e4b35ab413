"""NVML's calls that have several versions, and what its errors mean.

A driver can be older or newer than pynvml, and other tools replace functions of pynvml. So each figure is
read by the newest call that works.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.binding import pynvml
from gpu_magic.devices.unknown import UNKNOWN, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "NOT_LOADED",
    "NO_LIBRARY",
    "OUTDATED",
    "REFUSED",
    "Calls",
    "ask",
    "bytes_or_unknown",
    "explain",
    "explain_of_gpu",
]

# How many processes one call can list. For a GPU that has more, pynvml's own function is called.
_PROCESSES = 32
# What the driver writes where it does not give a process's memory.
_NOT_AVAILABLE = (None, pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value)

# Why no GPU can be read, as sentences.
NO_LIBRARY = (
    "No GPU can be seen, as NVML is not here "
    "(libnvidia-ml.so.1 of the NVIDIA driver). In a container that has a GPU, "
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility adds it."
)
NOT_LOADED = (
    "The NVIDIA driver is installed and not loaded: "
    "running nvidia-smi as an administrator, or a reboot, loads it."
)
OUTDATED = (
    "The NVIDIA driver was updated while its old kernel module "
    "is still loaded (driver/library version mismatch): rebooting fixes it."
)
REFUSED = "The NVIDIA driver refuses this user: an administrator can give access to /dev/nvidia*."
_SENTENCES = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: NO_LIBRARY,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: OUTDATED,
    pynvml.NVML_ERROR_NO_PERMISSION: REFUSED,
}
# The same of one GPU, as it goes on after "GPU 1 is".
_OF_ONE_GPU = {
    pynvml.NVML_ERROR_NO_PERMISSION: "closed to this user: an administrator can give access to /dev/nvidia*",
    pynvml.NVML_ERROR_GPU_IS_LOST: "not answering: the driver says this GPU is lost",
}


class _VersionedCall:
    """A call that has several versions: the newest that this driver and this pynvml have is made.

    Parameters
    ----------
    versions
        The newest one first.

    """

    def __init__(self, *versions: Callable[[Any], Any]) -> None:
        self._versions = versions

    def __call__(self, handle: Any) -> Any:
        """Return the figure of a device; UNKNOWN where the driver does not give it."""
        versions = self._versions
        try:
            return versions[0](handle)
        # AttributeError: pynvml is older. TypeError: gpustat, once imported, has replaced functions of pynvml
        # by its own, which take no version and choose it themselves.
        except (pynvml.NVMLError_FunctionNotFound, AttributeError, TypeError):
            if len(versions) == 1:
                return UNKNOWN
            if self._versions is versions:  # no other thread has removed this version
                self._versions = versions[1:]
            return self(handle)
        except pynvml.NVMLError_GpuIsLost:
            raise
        except pynvml.NVMLError:
            return UNKNOWN


def _version(name: str, *arguments: Any, **options: Any) -> Callable[[Any], Any]:
    """Return a call of one of pynvml's functions, which an older pynvml may not have."""
    return lambda handle: getattr(pynvml, name)(handle, *arguments, **options)


class Calls:
    """The calls that have more than one version. Each takes the handle of a device."""

    def __init__(self) -> None:
        # Version 2 of memory, and version 3 of processes, came with R510.
        self.memory = _VersionedCall(
            _version("nvmlDeviceGetMemoryInfo", version=pynvml.nvmlMemory_v2),
            _version("nvmlDeviceGetMemoryInfo"),
        )
        self.processes = _VersionedCall(
            _list_processes,
            _version("nvmlDeviceGetComputeRunningProcesses_v3"),
            _version("nvmlDeviceGetComputeRunningProcesses_v2"),
        )
        # The first is deprecated, and faster: it needs no structure.
        self.temperature = _VersionedCall(
            _version("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU),
            _version("nvmlDeviceGetTemperatureV", pynvml.NVML_TEMPERATURE_GPU),
        )
        # Why the clocks are lower than they could be, as bits; "event" in place of "throttle" since R535.
        self.clock_reasons = _VersionedCall(
            _version("nvmlDeviceGetCurrentClocksEventReasons"),
            _version("nvmlDeviceGetCurrentClocksThrottleReasons"),
        )


def _list_processes(handle: Any) -> Any:
    """Return a GPU's processes, with one call unless there are many of them.

    pynvml's own function makes a second call for their number, and turns each into an object.
    """
    count = ctypes.c_uint(_PROCESSES)
    found = (pynvml.c_nvmlProcessInfo_v3_t * _PROCESSES)()
    call = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetComputeRunningProcesses_v3")  # noqa: SLF001
    answer = call(handle, ctypes.byref(count), found)
    if answer == pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
        return pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    if answer != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(answer)
    return found[: count.value]


def ask(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function of pynvml returns; UNKNOWN where the driver refuses.

    Raises
    ------
    pynvml.NVMLError_GpuIsLost
        None of the GPU's figures can be read.

    """
    try:
        return call(*arguments)
    except pynvml.NVMLError_GpuIsLost:
        raise
    except (pynvml.NVMLError, UnicodeDecodeError):
        return UNKNOWN


def bytes_or_unknown(memory: int | None) -> int | Unknown:
    """Return a process's memory in bytes; UNKNOWN where the driver does not give it."""
    return UNKNOWN if memory in _NOT_AVAILABLE else memory


def explain(error: Any) -> str:
    """Return what an NVML error about the machine means, as a sentence."""
    return _SENTENCES.get(error.value) or f"The NVIDIA driver is not answering: it says {error}."


def explain_of_gpu(error: Any) -> str:
    """Return what an NVML error about one GPU means, as it goes on after "GPU 1 is"."""
    return _OF_ONE_GPU.get(error.value) or f"not answering: the driver says {error}"
