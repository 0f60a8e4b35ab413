"""The ways to take a snapshot: each function prepares and returns the call that is timed.

What stands behind it in `PLAIN` brings its answer into the form in which all are seen to read the same.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20


def bare() -> Callable[[], list[Any]]:
    """Read as somebody does who knows both NVML and /proc: handles, owners and names are kept."""
    import pwd

    import pynvml

    owners: dict[int, str] = {}
    names: dict[int, tuple[int, str]] = {}
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]

    def look_up(pid: int) -> tuple[str, str]:
        try:
            seen = os.stat(f"/proc/{pid}")
            if names.get(pid, (0, ""))[0] != seen.st_ino:  # another process has the number now
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    program = file.read().partition(b"\0")[0].rpartition(b"/")[2]
                names[pid] = seen.st_ino, program.decode("utf-8", "replace")
        except OSError:
            return "?", "?"
        if seen.st_uid not in owners:
            owners[seen.st_uid] = pwd.getpwuid(seen.st_uid).pw_name
        return owners[seen.st_uid], names[pid][1]

    def snapshot() -> list[Any]:
        found = []
        for handle in handles:
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
            utilization = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
            temperature = pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
            watts = pynvml.nvmlDeviceGetPowerUsage(handle) / 1000
            running = [
                (process.pid, *look_up(process.pid), process.usedGpuMemory)
                for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            ]
            found.append((memory.used, utilization, temperature, watts, running))
        return found

    return snapshot


def _plain_bare(answer: list[Any]) -> list[Any]:
    return [
        (used // MIB, percent, celsius, int(watts), [(*who, memory // MIB) for *who, memory in running])
        for used, percent, celsius, watts, running in answer
    ]


def ours() -> Callable[[], Any]:
    """Read what Python gets: also the mask, and what the guard says."""
    import gpu_magic

    return gpu_magic.gpus


def reader() -> Callable[[], Any]:
    """Read what bare pynvml reads."""
    from gpu_magic.devices.nvml import Nvml

    return Nvml().inventory


def _plain_ours(answer: Any) -> list[Any]:
    return [
        (
            gpu.status.memory_used // MIB,
            gpu.status.utilization,
            gpu.status.temperature,
            int(gpu.status.power),
            [(one.pid, one.owner, one.name, one.memory // MIB) for one in gpu.status.processes],
        )
        for gpu in answer
    ]


def nvitop() -> Callable[[], list[Any]]:
    """Read these figures alone. `take_snapshots`, which its documentation shows, asks for much more."""
    from nvitop import Device

    devices = Device.all()
    kept: list[Any] = []  # nvitop knows a process again for as long as somebody holds it

    def snapshot() -> list[Any]:
        kept[:] = found = [
            (
                device.memory_used(),
                device.gpu_utilization(),
                device.temperature(),
                device.power_usage() / 1000,
                [(one, one.pid, one.username(), one.name(), one.gpu_memory()) for one in running],
            )
            for device in devices
            for running in [device.processes().values()]
        ]
        return found

    return snapshot


def _plain_nvitop(answer: list[Any]) -> list[Any]:
    return _plain_bare([(*figures, [who for _, *who in running]) for *figures, running in answer])


PLAIN: dict[str, Callable[[Any], list[Any]]] = {
    "bare": _plain_bare,
    "reader": _plain_ours,
    "ours": _plain_ours,
    "nvitop": _plain_nvitop,
}
