"""Bare pynvml, in the way that somebody writes it who knows both NVML and /proc.

Handles and user names are kept, tuples are all it makes, and a process that has gone is all it expects to
go wrong.
"""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, Any

import pynvml

from benchmarks.readers import MIB, Plain

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["plain", "read", "read_keeping_names"]

_owners: dict[int, str] = {}
_names: dict[int, tuple[int, str]] = {}


def read() -> Callable[[], list[Any]]:
    """Read the names of processes at every snapshot."""
    return _reader(_look_up)


def read_keeping_names() -> Callable[[], list[Any]]:
    """Read a process's name once."""
    return _reader(_look_up_once)


def _reader(look_up: Callable[[int], tuple[str, str]]) -> Callable[[], list[Any]]:
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]

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
            found.append((memory.total, memory.used, memory.free, utilization, temperature, watts, running))
        return found

    return snapshot


def _look_up(pid: int) -> tuple[str, str]:
    try:
        return _owner(os.stat(f"/proc/{pid}").st_uid), _name(pid)
    except OSError:
        return "?", "?"


def _look_up_once(pid: int) -> tuple[str, str]:
    try:
        seen = os.stat(f"/proc/{pid}")
        kept = _names.get(pid)
        if kept is None or kept[0] != seen.st_ino:  # another process has the number now
            kept = _names[pid] = seen.st_ino, _name(pid)
        return _owner(seen.st_uid), kept[1]
    except OSError:
        return "?", "?"


def _owner(uid: int) -> str:
    owner = _owners.get(uid)
    if owner is None:
        owner = _owners[uid] = pwd.getpwuid(uid).pw_name
    return owner


def _name(pid: int) -> str:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().partition(b"\0")[0].rpartition(b"/")[2].decode("utf-8", "replace")


def plain(answer: list[Any]) -> Plain:
    return [
        (
            used // MIB,
            utilization,
            temperature,
            int(watts),
            [(pid, owner, name, memory // MIB) for pid, owner, name, memory in running],
        )
        for _, used, _, utilization, temperature, watts, running in answer
    ]
