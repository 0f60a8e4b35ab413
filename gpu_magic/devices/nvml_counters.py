"""Reads what NVIDIA's GPUs count: see `counters`."""

from __future__ import annotations

import contextlib
import ctypes
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.binding import pynvml
from gpu_magic.devices.counters import NO_COUNTERS, Counters
from gpu_magic.devices.nvml_calls import ask, bytes_or_unknown
from gpu_magic.devices.unknown import UNKNOWN, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_magic.devices.nvml_calls import Calls

__all__ = ["read_counters"]

# How many processes' work one call can tell. For a GPU that has more, pynvml's own function is called.
_PROCESSES = 32


def read_counters(handles: Mapping[str, Any], calls: Calls, since: int | None) -> dict[str, Counters]:
    """Read the counters of devices; nothing is known of one that is lost.

    Parameters
    ----------
    handles, calls
        The devices' handles, by their UUIDs, and the calls that have several versions.
    since
        Tell the work of processes after this moment, in microseconds since 1970, which is what the driver
        counts in (`nvmlProcessUtilizationSample_t.timeStamp`). None: read energy and memory alone, which is
        what is to be known before a block.

    """
    found = dict.fromkeys(handles, NO_COUNTERS)
    with contextlib.suppress(pynvml.NVMLError):
        for uuid, handle in handles.items():
            found[uuid] = _read(handle, calls, since)
    return found


def _read(handle: Any, calls: Calls, since: int | None) -> Counters:
    energy = ask(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)  # millijoules
    rates = UNKNOWN if since is None else ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
    running = calls.processes(handle)
    return Counters(
        UNKNOWN if energy is UNKNOWN else energy / 1000,
        UNKNOWN if rates is UNKNOWN else rates.gpu,
        UNKNOWN
        if running is UNKNOWN
        else {process.pid: bytes_or_unknown(process.usedGpuMemory) for process in running},
        UNKNOWN if since is None else _read_work(handle, since),
    )


def _read_work(handle: Any, since: int) -> dict[int, int] | Unknown:
    """Return how busy each process has kept a GPU, in percent, with one call unless there are many."""
    count = ctypes.c_uint(_PROCESSES)
    found = (pynvml.c_nvmlProcessUtilizationSample_t * _PROCESSES)()
    try:
        call = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetProcessUtilization")  # noqa: SLF001
        answer = call(handle, found, ctypes.byref(count), ctypes.c_ulonglong(since))
        samples = found[: count.value]
        if answer == pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
            answer, samples = pynvml.NVML_SUCCESS, pynvml.nvmlDeviceGetProcessUtilization(handle, since)
    except pynvml.NVMLError as error:  # the function is missing, or a GPU is lost
        answer = error.value
    if answer == pynvml.NVML_ERROR_GPU_IS_LOST:
        raise pynvml.NVMLError(answer)
    if answer == pynvml.NVML_ERROR_NOT_FOUND:  # no process has worked since
        return {}
    if answer != pynvml.NVML_SUCCESS:
        return UNKNOWN
    work: dict[int, int] = {}
    for sample in samples:  # a process can have several
        if sample.smUtil and sample.timeStamp > since:
            work[sample.pid] = max(sample.smUtil, work.get(sample.pid, 0))
    return work
