"""The library of a simulated machine: what pynvml calls in place of libnvidia-ml.so.1.

pynvml looks functions up by name and passes ctypes arguments: out-parameters as `byref(x)`, whose target
is `arg._obj`. Written against nvidia-ml-py 13.615. A function that this library does not have returns
NOT_SUPPORTED, as a driver does for a GPU that lacks a feature, so that other tools run on it as well.
"""

from __future__ import annotations

import ctypes
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.binding import pynvml
from gpu_magic.devices.simulated.machine import Machine, SimulatedGpu, SimulatedMig

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["OF_WHOLE_GPUS", "SimulatedLibrary"]

# A handle is the number 1 + 16 * GPU + instance: 0 for the GPU itself, 1 for its first MIG instance.
_HANDLES = 16
_NO_INSTANCE = 0xFFFFFFFF  # of a process that does not run in a MIG instance


# What a whole GPU answers, and a MIG instance does not: a value for each out-parameter, which come last.
OF_WHOLE_GPUS: dict[str, Callable[[SimulatedGpu], Any]] = {
    "nvmlDeviceGetMinorNumber": lambda gpu: gpu.minor,
    "nvmlDeviceGetMigMode": lambda gpu: (gpu.is_split, gpu.is_split) if gpu.model.has_mig else None,
    "nvmlDeviceGetComputeMode": lambda gpu: getattr(pynvml, f"NVML_COMPUTEMODE_{gpu.compute_mode.upper()}"),
    "nvmlDeviceGetCudaComputeCapability": lambda gpu: gpu.model.capability,
    "nvmlDeviceGetNumGpuCores": lambda gpu: gpu.model.cores,
    "nvmlDeviceGetMaxClockInfo": lambda gpu: gpu.model.clock,  # of all its clocks
    "nvmlDeviceGetTemperature": lambda gpu: gpu.temperature,
    "nvmlDeviceGetPowerUsage": lambda gpu: gpu.power,
    "nvmlDeviceGetTotalEnergyConsumption": lambda gpu: gpu.energy,
    "nvmlDeviceGetEnforcedPowerLimit": lambda gpu: gpu.model.watts * 1000,
    "nvmlDeviceGetPowerManagementLimit": lambda gpu: gpu.model.watts * 1000,
    "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu: gpu.clock_reasons,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: gpu.clock_reasons,
}


class SimulatedLibrary:
    """NVML's functions for a `Machine`. `calls` counts the calls by name."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.calls: Counter[str] = Counter()
        self._users = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("nvml") or name in self.machine.missing:
            raise AttributeError(name)
        answer = getattr(type(self), f"_{name}", None)

        def call(*arguments: Any) -> int:
            self.calls[name] += 1
            if name not in _WITHOUT_INIT and not self._users:
                return int(pynvml.NVML_ERROR_UNINITIALIZED)
            gpu = _gpu_number(name, arguments)
            self.machine.wait_if_hanging(name, gpu)
            if gpu is not None:
                if not 0 <= gpu < len(self.machine.gpus):
                    return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
                for prefix, error in self.machine.gpus[gpu].errors.items():
                    if name.startswith(prefix):
                        return error
            if name in OF_WHOLE_GPUS:
                return self._answer(OF_WHOLE_GPUS[name], *arguments)
            if answer is None:
                return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return int(answer(self, *arguments) or pynvml.NVML_SUCCESS)

        call.__name__ = name
        return call

    def _device(self, handle: Any) -> SimulatedGpu | SimulatedMig:
        gpu, instance = divmod(_number(handle) - 1, _HANDLES)
        return self.machine.gpus[gpu].mig[instance - 1] if instance else self.machine.gpus[gpu]

    def _answer(self, figures: Callable[[SimulatedGpu], Any], handle: Any, *arguments: Any) -> int:
        gpu = self._device(handle)
        found = None if isinstance(gpu, SimulatedMig) else figures(gpu)
        if found is None:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        values = found if isinstance(found, tuple) else (found,)
        for argument, value in zip(arguments[-len(values) :], values, strict=True):
            argument._obj.value = value  # noqa: SLF001
        return 0

    # The library as a whole

    def _nvmlInitWithFlags(self, flags: Any) -> int:
        if not self.machine.refusal:
            self._users += 1
        return self.machine.refusal

    def _nvmlInit_v2(self) -> int:
        return self._nvmlInitWithFlags(0)

    def _nvmlShutdown(self) -> None:
        self._users -= 1

    def _nvmlErrorString(self, error: Any) -> int:
        return int(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def _nvmlSystemGetDriverVersion(self, text: Any, size: Any) -> None:
        text.value = self.machine.driver.encode()

    def _nvmlSystemGetCudaDriverVersion(self, version: Any) -> None:
        version._obj.value = self.machine.cuda  # noqa: SLF001

    _nvmlSystemGetCudaDriverVersion_v2 = _nvmlSystemGetCudaDriverVersion

    def _nvmlDeviceGetCount_v2(self, count: Any) -> None:
        count._obj.value = len(self.machine.gpus)  # noqa: SLF001

    def _nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> None:
        _point(handle, 1 + index.value * _HANDLES)

    # What a GPU is

    def _nvmlDeviceGetIndex(self, handle: Any, index: Any) -> None:
        index._obj.value = (_number(handle) - 1) // _HANDLES  # noqa: SLF001

    def _nvmlDeviceGetName(self, handle: Any, text: Any, size: Any) -> None:
        device = self._device(handle)
        text.value = (device.name if isinstance(device, SimulatedMig) else device.model.name).encode()

    def _nvmlDeviceGetUUID(self, handle: Any, text: Any, size: Any) -> None:
        text.value = self._device(handle).uuid.encode()

    def _nvmlDeviceGetPciInfo_v3(self, handle: Any, info: Any) -> int:
        gpu = self._device(handle)
        if isinstance(gpu, SimulatedMig):
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        domain, bus, device = gpu.bus_id.partition(".")[0].split(":")
        info._obj.busId = gpu.bus_id.encode()  # noqa: SLF001
        info._obj.busIdLegacy = gpu.bus_id[4:].encode()  # noqa: SLF001
        info._obj.domain, info._obj.bus, info._obj.device = int(domain, 16), int(bus, 16), int(device, 16)  # noqa: SLF001
        return 0

    def _nvmlDeviceIsMigDeviceHandle(self, handle: Any, answer: Any) -> None:
        answer._obj.value = int(isinstance(self._device(handle), SimulatedMig))  # noqa: SLF001

    def _nvmlDeviceGetMaxMigDeviceCount(self, handle: Any, count: Any) -> None:
        gpu = self._device(handle)
        count._obj.value = 7 if isinstance(gpu, SimulatedGpu) and gpu.is_split else 0  # noqa: SLF001

    def _nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: Any, instance: Any) -> int:
        gpu = self._device(handle)
        if isinstance(gpu, SimulatedMig) or index.value >= len(gpu.mig):
            return int(pynvml.NVML_ERROR_NOT_FOUND)
        _point(instance, _number(handle) + 1 + index.value)
        return 0

    def _nvmlDeviceGetGpuInstanceId(self, handle: Any, number: Any) -> int:
        instance = self._device(handle)
        if isinstance(instance, SimulatedGpu):
            return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        number._obj.value = instance.gpu_instance  # noqa: SLF001
        return 0

    def _nvmlDeviceGetComputeInstanceId(self, handle: Any, number: Any) -> int:
        if isinstance(self._device(handle), SimulatedGpu):
            return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        number._obj.value = 0  # noqa: SLF001
        return 0

    def _nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, instance: Any, handle: Any) -> None:
        _point(handle, 1 + (_number(instance) - 1) // _HANDLES * _HANDLES)

    # What it does now

    def _nvmlDeviceGetMemoryInfo_v2(self, handle: Any, memory: Any) -> None:
        device, info = self._device(handle), memory._obj  # noqa: SLF001
        if isinstance(device, SimulatedMig):
            info.total, info.reserved = device.memory, 0
        else:
            info.total, info.reserved = device.model.memory, device.reserved
        info.used = device.memory_used
        info.free = info.total - info.reserved - info.used

    def _nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> None:
        self._nvmlDeviceGetMemoryInfo_v2(handle, memory)
        info = memory._obj  # noqa: SLF001
        info.used = info.total - info.free  # with what is reserved, which version 2 tells apart

    def _nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:
        gpu = self._device(handle)
        if isinstance(gpu, SimulatedMig) or gpu.is_split:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        rates._obj.gpu = gpu.utilization  # noqa: SLF001
        rates._obj.memory = 100 * gpu.memory_used // gpu.model.memory  # noqa: SLF001
        return 0

    def _nvmlDeviceGetTemperatureV(self, handle: Any, temperature: Any) -> int:
        gpu = self._device(handle)
        if isinstance(gpu, SimulatedMig):
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        temperature._obj.temperature = gpu.temperature  # noqa: SLF001
        return 0

    def _nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, array: Any) -> int:
        running = self._device(handle).processes
        room, count._obj.value = count._obj.value, len(running)  # noqa: SLF001
        if room < len(running):
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        for process, entry in zip(running, array or (), strict=False):
            entry.pid = process.pid
            entry.gpuInstanceId = entry.computeInstanceId = _NO_INSTANCE
            entry.usedGpuMemory = (
                pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value if process.memory is None else process.memory
            )
        return 0

    def _nvmlDeviceGetProcessUtilization(self, handle: Any, array: Any, count: Any, since: Any) -> int:
        gpu = self._device(handle)
        if isinstance(gpu, SimulatedMig) or gpu.is_split:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        now = time.time_ns() // 100_000_000 * 100_000  # microseconds, of the last step
        working = [process for process in gpu.processes if process.work] if now > since.value else []
        room, count._obj.value = count._obj.value, len(working)  # noqa: SLF001
        if not working:
            return int(pynvml.NVML_ERROR_NOT_FOUND)
        if room < len(working):
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        for process, entry in zip(working, array, strict=False):
            entry.pid, entry.timeStamp, entry.smUtil = process.pid, now, process.work
        return 0

    _nvmlDeviceGetComputeRunningProcesses_v2 = _nvmlDeviceGetComputeRunningProcesses_v3

    def _nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle: Any, count: Any, array: Any) -> None:
        count._obj.value = 0  # noqa: SLF001


_WITHOUT_INIT = {"nvmlInitWithFlags", "nvmlInit_v2", "nvmlErrorString"}


def _number(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _point(handle: Any, number: int) -> None:
    """Write a number into an `nvmlDevice_t` out-parameter: an opaque pointer, to its users."""
    ctypes.c_void_p.from_buffer(handle._obj).value = number  # noqa: SLF001


def _gpu_number(name: str, arguments: tuple[Any, ...]) -> int | None:
    """Return the index of the GPU that a call is about; None for the library as a whole."""
    if not name.startswith("nvmlDevice") or name.startswith("nvmlDeviceGetCount") or not arguments:
        return None
    if name.startswith("nvmlDeviceGetHandleByIndex"):
        return int(arguments[0].value)
    if isinstance(arguments[0], pynvml.c_nvmlDevice_t):
        return (_number(arguments[0]) - 1) // _HANDLES
    return None
