"""NVML's calls where they have changed over the years, and what its errors mean.

A driver can be older or newer than pynvml, and other tools change pynvml in place, so each figure is asked
for in the newest way that works.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import pynvml

from gpu_magic.devices.unknown import UNKNOWN, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Calls", "ask", "bytes_or_unknown", "explain"]

# Room for as many in one call; where a GPU has more, pynvml's own function is asked.
_PROCESSES = 32
# NVML_VALUE_NOT_AVAILABLE: what the driver writes where it does not tell a process's memory.
_NOT_AVAILABLE = (None, pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value)

_SENTENCES = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "No NVIDIA driver was found (libnvidia-ml.so.1 is not there). "
    "To try gpu_magic without one: %env GPU_MAGIC_SIMULATE=8xA100-80GB, then %gpus.",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "The NVIDIA driver is installed and not loaded: "
    "running nvidia-smi as an administrator, or a reboot, loads it.",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "The NVIDIA driver was updated while its old kernel module "
    "is still loaded (driver/library version mismatch): a reboot mends it.",
    pynvml.NVML_ERROR_NO_PERMISSION: "The NVIDIA driver refuses this user: "
    "an administrator can give access to /dev/nvidia*.",
    pynvml.NVML_ERROR_GPU_IS_LOST: "not answering: the driver says this GPU is lost",
}


class _Newest:
    """The newest of several ways to ask for one figure that this driver and this pynvml have."""

    def __init__(self, *ways: Callable[[Any], Any]) -> None:
        self._ways = ways

    def __call__(self, handle: Any) -> Any:
        ways = self._ways
        try:
            return ways[0](handle)
        # AttributeError: pynvml is older. TypeError: gpustat, once imported, has put functions of its own
        # into pynvml, which take no version and find it themselves.
        except (pynvml.NVMLError_FunctionNotFound, AttributeError, TypeError):
            if len(ways) == 1:
                return UNKNOWN
            if self._ways is ways:  # and not another thread's finding by now
                self._ways = ways[1:]
            return self(handle)
        except pynvml.NVMLError_GpuIsLost:
            raise
        except pynvml.NVMLError:
            return UNKNOWN


def _way(name: str, *arguments: Any, **options: Any) -> Callable[[Any], Any]:
    """Return a way to call one of pynvml's functions, which an older pynvml may not have."""
    return lambda handle: getattr(pynvml, name)(handle, *arguments, **options)


class Calls:
    """The calls that have had more than one version."""

    def __init__(self) -> None:
        # Version 2 of memory, and version 3 of processes, came with R510.
        self.memory = _Newest(
            _way("nvmlDeviceGetMemoryInfo", version=pynvml.nvmlMemory_v2),
            _way("nvmlDeviceGetMemoryInfo"),
        )
        self.processes = _Newest(
            _list_processes,
            _way("nvmlDeviceGetComputeRunningProcesses_v3"),
            _way("nvmlDeviceGetComputeRunningProcesses_v2"),
        )
        # The first is deprecated, and faster than the second by a structure.
        self.temperature = _Newest(
            _way("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU),
            _way("nvmlDeviceGetTemperatureV", pynvml.NVML_TEMPERATURE_GPU),
        )


def _list_processes(handle: Any) -> Any:
    """List a GPU's processes in one call, where there are few enough of them.

    pynvml's own function asks for their number first, and turns each into an object.
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
    """Make one call; UNKNOWN where the driver has no answer. A lost GPU is the caller's business."""
    try:
        return call(*arguments)
    except pynvml.NVMLError_GpuIsLost:
        raise
    except (pynvml.NVMLError, UnicodeDecodeError):
        return UNKNOWN


def bytes_or_unknown(memory: int | None) -> int | Unknown:
    """Return a process's memory in bytes, where the driver tells it."""
    return UNKNOWN if memory in _NOT_AVAILABLE else memory


def explain(error: Any) -> str:
    """Say in a sentence what an NVML error means for the person who looks at the table."""
    return _SENTENCES.get(error.value) or f"not answering: the driver says {error}"
