"""NVML's calls where they have changed over the years, and what its errors mean.

A driver can be older or newer than pynvml, and other tools change pynvml in place, so each figure is asked
for in the newest way that works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pynvml

from gpu_magic.devices.model import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Calls", "ask", "explain"]

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
        try:
            return self._ways[0](handle)
        # AttributeError: pynvml is older. TypeError: gpustat, once imported, has put functions of its own
        # into pynvml, which take no version and find it themselves.
        except (pynvml.NVMLError_FunctionNotFound, AttributeError, TypeError):
            if len(self._ways) == 1:
                return UNKNOWN
            self._ways = self._ways[1:]
            return self(handle)
        except pynvml.NVMLError_GpuIsLost:
            raise
        except pynvml.NVMLError:
            return UNKNOWN


class Calls:
    """The calls that have had more than one version."""

    def __init__(self) -> None:
        gpu = pynvml.NVML_TEMPERATURE_GPU
        # Version 2 of memory, and version 3 of processes, came with R510.
        self.memory = _Newest(
            lambda handle: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2),
            pynvml.nvmlDeviceGetMemoryInfo,
        )
        self.processes = _Newest(
            pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
            pynvml.nvmlDeviceGetComputeRunningProcesses_v2,
        )
        # The first is deprecated, and faster than the second by a structure.
        self.temperature = _Newest(
            lambda handle: pynvml.nvmlDeviceGetTemperature(handle, gpu),
            lambda handle: pynvml.nvmlDeviceGetTemperatureV(handle, gpu),
        )


def ask(call: Callable[..., Any], *arguments: Any) -> Any:
    """Make one call; UNKNOWN where the driver has no answer. A lost GPU is the caller's business."""
    try:
        return call(*arguments)
    except pynvml.NVMLError_GpuIsLost:
        raise
    except pynvml.NVMLError:
        return UNKNOWN


def explain(error: Any) -> str:
    """Say in a sentence what an NVML error means for the person who looks at the table."""
    return _SENTENCES.get(error.value) or f"not answering: the driver says {error}"
