"""What callers of the pretend driver libraries get: pynvml, ctypes, and PyTorch in `native_torch`."""

from __future__ import annotations

import ctypes
import json
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml

if TYPE_CHECKING:
    from collections.abc import Callable


def load_cuda() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def count(cuda: ctypes.CDLL) -> dict[str, int]:
    number = ctypes.c_int(-1)
    return {"code": cuda.cuDeviceGetCount(ctypes.byref(number)), "count": number.value}


def uuids(cuda: ctypes.CDLL, function: str = "cuDeviceGetUuid_v2") -> list[str]:
    """Return the 16 bytes of each device's UUID, in hexadecimal."""
    found = []
    for ordinal in range(max(0, count(cuda)["count"])):
        raw = (ctypes.c_ubyte * 16)()
        assert getattr(cuda, function)(raw, ordinal) == 0
        found.append(bytes(raw).hex())
    return found


def change(old: str, new: str) -> None:
    """Change the machine while we look at it."""
    state = Path(os.environ["GPU_MAGIC_TEST_STATE"])
    text = state.read_text()
    assert old in text
    changed = state.with_name("changed")
    changed.write_text(text.replace(old, new))
    changed.replace(state)


def error_of(call: Callable[..., Any], *arguments: Any) -> int | None:
    """Return the number of the NVMLError that a call raises; None where it raises none."""
    try:
        call(*arguments)
    except pynvml.NVMLError as error:
        return error.value
    return None


def gpus() -> list[dict[str, Any]]:
    """Return all that pynvml says of each GPU."""
    pynvml.nvmlInit()
    return [_gpu(pynvml.nvmlDeviceGetHandleByIndex(index)) for index in range(pynvml.nvmlDeviceGetCount())]


def _gpu(gpu: Any) -> dict[str, Any]:
    uuid = pynvml.nvmlDeviceGetUUID(gpu)
    memory = pynvml.nvmlDeviceGetMemoryInfo(gpu)
    memory_v2 = pynvml.nvmlDeviceGetMemoryInfo(gpu, pynvml.nvmlMemory_v2)
    pci = pynvml.nvmlDeviceGetPciInfo(gpu)
    return {
        "name": pynvml.nvmlDeviceGetName(gpu),
        "uuid": uuid,
        "index": pynvml.nvmlDeviceGetIndex(gpu),
        "index by uuid": pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(uuid)),
        "memory": [memory.total, memory.used, memory.free],
        "memory, version 2": [memory_v2.total, memory_v2.used, memory_v2.free],
        "utilization": pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
        "temperature": pynvml.nvmlDeviceGetTemperature(gpu, 0),
        "temperature, versioned": pynvml.nvmlDeviceGetTemperatureV(gpu, 0),
        "power": pynvml.nvmlDeviceGetPowerUsage(gpu),
        "power limit": pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu),
        "pci": [pci.busId, pci.busIdLegacy, pci.domain, pci.bus, pci.device],
        "processes": [[p.pid, p.usedGpuMemory] for p in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)],
        "mig mode": pynvml.nvmlDeviceGetMigMode(gpu),
        "mig instances": pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu),
    }


def answers() -> dict[str, Any]:
    """Return all that the driver answers to what gpu_magic calls: of the machine, its GPUs, MIG instances and pairs."""
    pynvml.nvmlInit()
    found = {
        "count": pynvml.nvmlDeviceGetCount(),
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "cuda": pynvml.nvmlSystemGetCudaDriverVersion(),
    }
    gpus = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    for index, gpu in enumerate(gpus):
        found |= {f"GPU {index}, {name}": answer for name, answer in _answers_of(gpu).items()}
        most = found[f"GPU {index}, instances"] = pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)
        for position in range(most + 1):
            instance = _answer(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, position)
            if isinstance(instance, str):
                found[f"GPU {index}, no instance {position}"] = instance
            else:
                of_it = _answers_of(instance).items()
                found |= {f"GPU {index}, instance {position}, {name}": answer for name, answer in of_it}
    pynvml.nvmlShutdown()
    return found


def _answers_of(device: Any) -> dict[str, Any]:
    calls: dict[str, tuple[Any, ...]] = {
        "nvmlDeviceGetMemoryInfo": (),
        "nvmlDeviceGetTemperature": (pynvml.NVML_TEMPERATURE_GPU,),
        "nvmlDeviceGetTemperatureV": (pynvml.NVML_TEMPERATURE_GPU,),
        "nvmlDeviceGetMaxClockInfo": (pynvml.NVML_CLOCK_SM,),
        "nvmlDeviceGetProcessUtilization": (0,),
    }
    figures = (
        "Name UUID PciInfo MigMode MinorNumber ComputeMode CudaComputeCapability NumGpuCores "
        "GpuInstanceId ComputeInstanceId UtilizationRates PowerUsage EnforcedPowerLimit "
        "CurrentClocksEventReasons CurrentClocksThrottleReasons ComputeRunningProcesses_v2 ComputeRunningProcesses_v3"
    )
    calls |= {f"nvmlDeviceGet{name}": () for name in figures.split()}
    answers = {name: _answer(getattr(pynvml, name), device, *arguments) for name, arguments in calls.items()}
    answers["memory, version 2"] = _answer(pynvml.nvmlDeviceGetMemoryInfo, device, pynvml.nvmlMemory_v2)
    # What is counted goes on while it is read: whether it is, is what can be compared.
    energy = _answer(pynvml.nvmlDeviceGetTotalEnergyConsumption, device)
    return answers | {"energy": energy if isinstance(energy, str) else "counted"}


def _answer(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a call returns, as JSON; where it raises, the error's name."""
    try:
        answer = call(*arguments)
    except pynvml.NVMLError as error:
        return type(error).__name__
    return _plain(answer)


def _plain(answer: Any) -> Any:
    if isinstance(answer, list | tuple):
        return list(map(_plain, answer))
    if isinstance(answer, pynvml.c_nvmlDevice_t) or not hasattr(answer, "_fields_"):
        fields = getattr(answer, "__dict__", None)  # pynvml's own object, in place of a structure
        return answer if not fields else _plain_fields({**fields})
    return _plain_fields({name: getattr(answer, name) for name, *_ in answer._fields_})


def _plain_fields(fields: dict[str, Any]) -> dict[str, Any]:
    # Numbers that nobody asks, and moments.
    left_out = ("pciDeviceId", "pciSubSystemId", "timeStamp", "memory")
    return {name: _plain(value) for name, value in fields.items() if name not in left_out}


def versions() -> dict[str, Any]:
    """Return the versions of the driver and of CUDA."""
    pynvml.nvmlInit()
    return {
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "cuda": pynvml.nvmlSystemGetCudaDriverVersion(),
        "cuda, version 2": pynvml.nvmlSystemGetCudaDriverVersion_v2(),
    }


def compute_mode() -> int:
    """Return the compute mode of the first GPU, as NVML numbers it."""
    pynvml.nvmlInit()
    mode: int = pynvml.nvmlDeviceGetComputeMode(pynvml.nvmlDeviceGetHandleByIndex(0))
    return mode


def errors_of_figures() -> dict[str, int | None]:
    """Return the error of each question about the first GPU."""
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    return {
        "memory": error_of(pynvml.nvmlDeviceGetMemoryInfo, gpu),
        "utilization": error_of(pynvml.nvmlDeviceGetUtilizationRates, gpu),
        "power": error_of(pynvml.nvmlDeviceGetPowerUsage, gpu),
        "power limit": error_of(pynvml.nvmlDeviceGetEnforcedPowerLimit, gpu),
        "temperature": error_of(pynvml.nvmlDeviceGetTemperature, gpu, 0),
        "fan": error_of(pynvml.nvmlDeviceGetFanSpeed, gpu),
    }


def mig_instances() -> dict[str, Any]:
    """Return the MIG mode and the instances of the second GPU."""
    pynvml.nvmlInit()
    gpu, found = pynvml.nvmlDeviceGetHandleByIndex(1), []
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
        except pynvml.NVMLError_NotFound:
            continue
        uuid, memory = pynvml.nvmlDeviceGetUUID(instance), pynvml.nvmlDeviceGetMemoryInfo(instance)
        name = pynvml.nvmlDeviceGetName(instance)
        assert pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByUUID(uuid)) == name
        found.append([uuid, name, memory.total, memory.used])
    return {
        "mode": pynvml.nvmlDeviceGetMigMode(gpu),
        "instances": found,
        "error of utilization": error_of(pynvml.nvmlDeviceGetUtilizationRates, instance),
    }


def lost_and_back() -> dict[str, Any]:
    """Lose the second GPU while we look at it, and have it back."""
    pynvml.nvmlInit()
    first, second = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2))
    before = pynvml.nvmlDeviceGetTemperature(second, 0)
    change("52000 ok", "52000 lost")
    lost = {
        "error of its name": error_of(pynvml.nvmlDeviceGetName, second),
        "error of its handle": error_of(pynvml.nvmlDeviceGetHandleByIndex, 1),
        "count": pynvml.nvmlDeviceGetCount(),
        "temperature of the first": pynvml.nvmlDeviceGetTemperature(first, 0),
    }
    change("52000 lost", "52000 ok")
    return {"before": before, "lost": lost, "after": pynvml.nvmlDeviceGetTemperature(second, 0)}


def error_of_start() -> str:
    """Return the name of the error with which NVML refuses to start."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return type(error).__name__
    return ""


def between_start_and_shutdown() -> dict[str, int]:
    """Return the error of a question at each step, NVML being started twice."""
    library = ctypes.CDLL("libnvidia-ml.so.1")

    def ask() -> int:
        code: int = library.nvmlDeviceGetCount_v2(ctypes.byref(ctypes.c_uint()))
        return code

    found = {"before": ask()}
    pynvml.nvmlInit()
    pynvml.nvmlInit()
    found["started twice"] = ask()
    pynvml.nvmlShutdown()
    found["shut down once"] = ask()
    pynvml.nvmlShutdown()
    found["shut down twice"] = ask()
    found["one shutdown more"] = library.nvmlShutdown()
    return found


def while_one_call_hangs() -> dict[str, Any]:
    """Ask for the memory of the second GPU, which hangs, and meanwhile for that of the first, and for its name."""
    pynvml.nvmlInit()
    first, second = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2))
    asking = threading.Thread(target=pynvml.nvmlDeviceGetMemoryInfo, args=(second,), daemon=True)
    asking.start()
    asking.join(0.5)
    memory, name = pynvml.nvmlDeviceGetMemoryInfo(first), pynvml.nvmlDeviceGetName(second)
    return {"hangs": asking.is_alive(), "memory of the first": memory.total, "name of the second": name}


def seconds_of_a_call() -> float:
    """Return how long a question for the memory of the second GPU takes."""
    pynvml.nvmlInit()
    second = pynvml.nvmlDeviceGetHandleByIndex(1)
    begun = time.monotonic()
    pynvml.nvmlDeviceGetMemoryInfo(second)
    return time.monotonic() - begun


def cuda_before_and_after_its_start() -> dict[str, Any]:
    """Start CUDA with the second GPU alone, and change the mask and the machine afterwards."""
    cuda, version, active = load_cuda(), ctypes.c_int(), ctypes.c_int()
    flags, context, device = ctypes.c_uint(), ctypes.c_void_p(), ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    found: dict[str, Any] = {
        "version": version.value,
        "before": count(cuda),
        "device before": cuda.cuDeviceGet(ctypes.byref(device), 0),
    }
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    found["start"] = cuda.cuInit(0)
    os.environ["CUDA_VISIBLE_DEVICES"] = "0,2"
    change("gpu GPU-b2", "gpu GPU-ee")
    found |= {"start again": cuda.cuInit(0), "after": count(cuda), "uuids after": uuids(cuda)}

    def state(ordinal: int) -> list[int]:
        code = cuda.cuDevicePrimaryCtxGetState(ordinal, ctypes.byref(flags), ctypes.byref(active))
        return [code, active.value]

    found["context"] = {
        "at first": state(0),
        "retain": cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        "retained": state(0),
        "release": cuda.cuDevicePrimaryCtxRelease_v2(0),
        "released": state(0),
        "of no device": state(1)[0],
    }
    name, text = ctypes.create_string_buffer(64), ctypes.c_char_p()
    cuda.cuDeviceGetName(name, 64, 0)
    cuda.cuGetErrorString(3, ctypes.byref(text))
    return found | {"name": name.value.decode(), "text of an error": (text.value or b"").decode()}


def cuda_in_a_child() -> dict[str, Any]:
    """Ask CUDA in a child that is forked before its start, and in one that is forked after it."""
    cuda = load_cuda()

    def child() -> dict[str, Any]:
        reader, writer = os.pipe()
        if os.fork() == 0:
            found = {"before": count(cuda), "start": cuda.cuInit(0), "after": count(cuda)}
            os.write(writer, json.dumps(found).encode())
            os._exit(0)
        os.wait()
        answer: dict[str, Any] = json.loads(os.read(reader, 1000))
        return answer

    early = child()
    return {"early": early, "start": cuda.cuInit(0), "late": child(), "parent": count(cuda)}


def cuda_devices() -> dict[str, Any]:
    """Return which devices CUDA has."""
    cuda = load_cuda()
    return {
        "start": cuda.cuInit(0),
        **count(cuda),
        "uuids": uuids(cuda),
        "uuids, version 1": uuids(cuda, "cuDeviceGetUuid"),
    }


def with_a_mistake_in_the_state() -> dict[str, int]:
    """Return what the libraries answer where they can't read the machine."""
    change("gpu GPU-b2", "gpo GPU-b2")
    return {"nvml": ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2(), "cuda": load_cuda().cuInit(0)}
