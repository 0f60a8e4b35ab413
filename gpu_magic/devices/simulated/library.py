"""The library of a simulated machine, which pynvml calls in place of libnvidia-ml.so.1.

pynvml looks functions up by name and passes ctypes arguments: out-parameters as `byref(x)`, whose target
is `arg._obj`. Written against nvidia-ml-py 13.615. A function that this library does not have returns
NOT_SUPPORTED, as a driver does for a GPU that lacks a feature, so that other tools also run.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import time
from collections import Counter
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.binding import private, pynvml
from gpu_magic.devices.processes import owner_name
from gpu_magic.devices.simulated.machine import Machine, SimulatedGpu, SimulatedMig
from gpu_magic.errors import SimulationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["ANSWERS", "SimulatedLibrary", "beneath", "ensure", "leave", "machine_of"]

# A handle is the number 1 + 16 * GPU + instance: 0 for the GPU itself, 1 for its first MIG instance.
_HANDLES = 16
_NO_INSTANCE = 0xFFFFFFFF  # of a process that does not run in a MIG instance
_HIDDEN = pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value
_WITHOUT_INIT = {"nvmlInitWithFlags", "nvmlInit_v2", "nvmlErrorString"}


def _memory(device: SimulatedGpu | SimulatedMig) -> dict[str, int]:
    free = device.memory - device.reserved - device.memory_used
    return {"total": device.memory, "used": device.memory_used, "free": free}


def _utilization(gpu: SimulatedGpu) -> dict[str, int] | None:
    work = {"gpu": gpu.utilization, "memory": 100 * gpu.memory_used // gpu.memory}
    return None if gpu.is_split else work


def _pci(gpu: SimulatedGpu) -> dict[str, Any]:
    domain, bus, device = (int(part, 16) for part in gpu.bus_id.partition(".")[0].split(":"))
    names = {"busId": gpu.bus_id.encode(), "busIdLegacy": gpu.bus_id[4:].encode()}
    return {**names, "domain": domain, "bus": bus, "device": device}


# The answers: a text, the fields of a structure, or a value for each of the last arguments.
_OF_MACHINES: dict[str, Callable[[Machine], Any]] = {
    "nvmlSystemGetDriverVersion": lambda machine: machine.driver,
    "nvmlSystemGetCudaDriverVersion": lambda machine: machine.cuda,
    "nvmlSystemGetCudaDriverVersion_v2": lambda machine: machine.cuda,
    "nvmlDeviceGetCount_v2": lambda machine: len(machine.gpus),
}
_OF_DEVICES: dict[str, Callable[[SimulatedGpu | SimulatedMig], Any]] = {
    "nvmlDeviceGetName": lambda device: device.name,
    "nvmlDeviceGetUUID": lambda device: device.uuid,
    "nvmlDeviceIsMigDeviceHandle": lambda device: isinstance(device, SimulatedMig),
    "nvmlDeviceGetMaxMigDeviceCount": lambda device: 7 if getattr(device, "is_split", False) else 0,
    "nvmlDeviceGetMemoryInfo_v2": lambda device: _memory(device) | {"reserved": device.reserved},
    # Its `used` includes the reserved memory, which version 2 reports separately.
    "nvmlDeviceGetMemoryInfo": lambda device: (
        _memory(device) | {"used": device.memory_used + device.reserved}
    ),
    "nvmlDeviceGetGraphicsRunningProcesses_v3": lambda _: (0, None),
}
_OF_INSTANCES: dict[str, Callable[[SimulatedMig], Any]] = {
    "nvmlDeviceGetGpuInstanceId": lambda instance: instance.gpu_instance,
    "nvmlDeviceGetComputeInstanceId": lambda _: 0,
}
_OF_WHOLE_GPUS: dict[str, Callable[[SimulatedGpu], Any]] = {
    "nvmlDeviceGetPciInfo_v3": _pci,
    "nvmlDeviceGetMinorNumber": lambda gpu: gpu.minor,
    "nvmlDeviceGetMigMode": lambda gpu: (gpu.is_split, gpu.is_split) if gpu.model.has_mig else None,
    "nvmlDeviceGetComputeMode": lambda gpu: getattr(pynvml, f"NVML_COMPUTEMODE_{gpu.compute_mode.upper()}"),
    "nvmlDeviceGetCudaComputeCapability": lambda gpu: gpu.model.capability,
    "nvmlDeviceGetNumGpuCores": lambda gpu: gpu.model.cores,
    "nvmlDeviceGetMaxClockInfo": lambda gpu: gpu.model.clock,  # for each kind of clock
    "nvmlDeviceGetUtilizationRates": _utilization,
    "nvmlDeviceGetTemperature": lambda gpu: gpu.temperature,
    "nvmlDeviceGetTemperatureV": lambda gpu: {"temperature": gpu.temperature},
    "nvmlDeviceGetPowerUsage": lambda gpu: gpu.power,
    "nvmlDeviceGetTotalEnergyConsumption": lambda gpu: gpu.energy,
    "nvmlDeviceGetEnforcedPowerLimit": lambda gpu: gpu.model.watts * 1000,
    "nvmlDeviceGetPowerManagementLimit": lambda gpu: gpu.model.watts * 1000,
    "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu: gpu.clock_reasons,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: gpu.clock_reasons,
}
ANSWERS: dict[str, Callable[[Any], Any]] = {**_OF_MACHINES, **_OF_DEVICES, **_OF_INSTANCES, **_OF_WHOLE_GPUS}


class SimulatedLibrary:
    """NVML's functions for a `Machine`. `calls` counts the calls by name."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.calls: Counter[str] = Counter()
        self._users = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("nvml") or name in self.machine.missing:
            raise AttributeError(name)

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
            if (answer := getattr(type(self), f"_{name}", None)) is not None:
                return int(answer(self, *arguments) or pynvml.NVML_SUCCESS)
            if name in ANSWERS:
                return self._answer(name, *arguments)
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)

        call.__name__ = name
        return call

    def _answer(self, name: str, *arguments: Any) -> int:
        asked: Any = self.machine if name in _OF_MACHINES else self._device(arguments[0])
        if name in (_OF_WHOLE_GPUS if isinstance(asked, SimulatedMig) else _OF_INSTANCES):
            is_wrong = name in _OF_INSTANCES
            return int(pynvml.NVML_ERROR_INVALID_ARGUMENT if is_wrong else pynvml.NVML_ERROR_NOT_SUPPORTED)
        found = ANSWERS[name](asked)
        if found is None:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        if isinstance(found, str):
            arguments[-2].value = found.encode()
        elif isinstance(found, dict):
            for field, value in found.items():
                setattr(arguments[-1]._obj, field, value)  # noqa: SLF001
        else:
            values = found if isinstance(found, tuple) else (found,)
            for argument, value in zip(arguments[-len(values) :], values, strict=True):
                if value is not None:
                    argument._obj.value = value  # noqa: SLF001
        return int(pynvml.NVML_SUCCESS)

    def _device(self, handle: Any) -> SimulatedGpu | SimulatedMig:
        gpu, instance = divmod(_number(handle) - 1, _HANDLES)
        return self.machine.gpus[gpu].mig[instance - 1] if instance else self.machine.gpus[gpu]

    # The library as a whole, and handles

    def _nvmlInitWithFlags(self, flags: Any) -> int:
        if not self.machine.refusal:
            self._users += 1
        return self.machine.refusal

    def _nvmlInit_v2(self) -> int:
        return self._nvmlInitWithFlags(0)

    def _nvmlShutdown(self) -> None:
        self._users -= 1

    def _nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> None:
        _point(handle, 1 + index.value * _HANDLES)

    def _nvmlDeviceGetIndex(self, handle: Any, index: Any) -> None:
        index._obj.value = (_number(handle) - 1) // _HANDLES  # noqa: SLF001

    def _nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: Any, instance: Any) -> int:
        gpu = self._device(handle)
        if isinstance(gpu, SimulatedMig) or index.value >= len(gpu.mig):
            return int(pynvml.NVML_ERROR_NOT_FOUND)
        _point(instance, _number(handle) + 1 + index.value)
        return 0

    def _nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, instance: Any, handle: Any) -> None:
        _point(handle, 1 + (_number(instance) - 1) // _HANDLES * _HANDLES)

    # Processes

    def _nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, array: Any) -> int:
        running = self._device(handle).processes
        room, count._obj.value = count._obj.value, len(running)  # noqa: SLF001
        if room < len(running):
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        for process, entry in zip(running, array or (), strict=False):
            entry.pid = process.pid
            entry.gpuInstanceId = entry.computeInstanceId = _NO_INSTANCE
            entry.usedGpuMemory = _HIDDEN if process.memory is None else process.memory
        return 0

    _nvmlDeviceGetComputeRunningProcesses_v2 = _nvmlDeviceGetComputeRunningProcesses_v3

    def _nvmlDeviceGetProcessUtilization(self, handle: Any, array: Any, count: Any, since: Any) -> int:
        gpu = self._device(handle)
        if isinstance(gpu, SimulatedMig) or gpu.is_split:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        now = time.time_ns() // 100_000_000 * 100_000  # microseconds, at the last update
        working = [process for process in gpu.processes if process.work] if now > since.value else []
        room, count._obj.value = count._obj.value, len(working)  # noqa: SLF001
        if not working:
            return int(pynvml.NVML_ERROR_NOT_FOUND)
        if room < len(working):
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        for process, entry in zip(working, array, strict=False):
            entry.pid, entry.timeStamp, entry.smUtil = process.pid, now, process.work
        return 0


def _number(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _point(handle: Any, number: int) -> None:
    """Write a number into an `nvmlDevice_t` out-parameter, which is an opaque pointer."""
    ctypes.c_void_p.from_buffer(handle._obj).value = number  # noqa: SLF001


def _gpu_number(name: str, arguments: tuple[Any, ...]) -> int | None:
    """Return the index of the GPU that a call is about. None for a call about the whole library."""
    if not name.startswith("nvmlDevice") or name.startswith("nvmlDeviceGetCount") or not arguments:
        return None
    if name.startswith("nvmlDeviceGetHandleByIndex"):
        return int(arguments[0].value)
    if isinstance(arguments[0], pynvml.c_nvmlDevice_t):
        return (_number(arguments[0]) - 1) // _HANDLES
    return None


@contextlib.contextmanager
def beneath(machine: Machine) -> Iterator[Machine]:
    """Let pynvml read a simulated machine within a `with` block."""
    before = _put_beneath(SimulatedLibrary(machine), users=0)
    try:
        yield machine
    finally:
        _put_beneath(*before)


# The library that pynvml called before GPU_MAGIC_SIMULATE replaced it, and its number of users.
_left: list[tuple[object, int]] = []


def ensure(described: str) -> None:
    """Let pynvml read the machine that GPU_MAGIC_SIMULATE describes, with processes on it, until `leave`.

    Options follow the profile: `8xA100-80GB seed=3 clock=0` (a constant clock). With `own=2:12GiB:60`, this
    process has 12 GiB on GPU 2 and keeps it busy for 60 % of the time. Other words raise SimulationError.
    """
    all_words = described.split()
    of_profile = list(takewhile(lambda word: "=" not in word, all_words))  # `2x h100` is refused as a whole
    profile, words = " ".join(of_profile), all_words[len(of_profile) :]
    options: dict[str, Any] = {}
    own: re.Match[str] | None = None
    for word in words:
        match = re.fullmatch(r"(seed|clock)=([0-9]{1,9})", word)
        own = re.fullmatch(r"own=([0-9]{1,3}):([0-9]{1,3})GiB:([0-9]{1,2}|100)", word) or own
        if match:
            options[match[1]] = int(match[2])
        elif not word.startswith("own=") or own is None:
            known = "seed=N, clock=SECONDS or own=GPU:SIZEGiB:PERCENT"
            raise SimulationError(f"GPU_MAGIC_SIMULATE={described}: {word!r} is not {known}.")
    there = machine_of(pynvml.nvmlLib)
    if there and there.described_by in (described, ""):  # "": a `with beneath` block is in force
        return
    try:
        machine = Machine(profile, **options)
    except SimulationError as error:
        raise SimulationError(f"GPU_MAGIC_SIMULATE: {error}") from None
    machine.described_by = described
    machine.populate()
    if own is not None:
        index, size, percent = map(int, own.groups())
        if index >= len(machine.gpus):
            raise SimulationError(f"GPU_MAGIC_SIMULATE: {profile} has no GPU {index} for own={index}:….")
        gpu = machine.gpus[index]
        gpu.processes.clear()
        owner = owner_name(os.getuid()) if hasattr(os, "getuid") else "me"
        gpu.run("ipykernel", owner, size << 30, pid=os.getpid(), work=percent)
    leave()
    _left.append(_put_beneath(SimulatedLibrary(machine), users=0))


def leave() -> None:
    """Remove the machine of `ensure`, if pynvml still reads it."""
    there = machine_of(pynvml.nvmlLib)
    if _left and there and there.described_by:
        _put_beneath(*_left.pop())


def machine_of(library: object) -> Machine | None:
    """Return the machine of a simulated library. None for another library."""
    return library.machine if isinstance(library, SimulatedLibrary) else None


def _put_beneath(library: object, users: int) -> tuple[object, int]:
    """Replace the library that pynvml calls. Return the previous library and its number of users."""
    count, functions = private("_nvmlLib_refcount"), private("_nvmlGetFunctionPointer_cache")
    before = pynvml.nvmlLib, count or 0
    if functions is not None:
        functions.clear()
    pynvml.nvmlLib = library
    if count is not None:
        pynvml._nvmlLib_refcount = users  # noqa: SLF001
    return before
