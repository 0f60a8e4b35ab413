"""Reads what this process has of its GPUs at one moment, as the driver and the frameworks count."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.devices.processes import UNKNOWN_PROCESS
from gpu_magic.devices.status import GpuProcess
from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.frameworks import imported
from gpu_magic.process.view import look_up_process, read_counters
from gpu_magic.usage.record import OtherProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_magic.devices.counters import Counters
    from gpu_magic.devices.processes import Process
    from gpu_magic.frameworks.answers import MemoryPool
    from gpu_magic.process.session import Session
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["NOT_READ", "DeviceReading", "Reading", "read"]


class DeviceReading(NamedTuple):
    """What the driver says of a device at one moment.

    Parameters
    ----------
    energy
        Joules that the whole GPU has used so far.
    utilization
        Percent of its last sampling period, whoever used it.
    memory
        Bytes that this process and its descendants have there.
    work
        Percent that these have kept it busy.
    others
        The other processes that work there; where the driver does not tell who works, those with memory.

    """

    energy: float | Unknown = UNKNOWN
    utilization: int | Unknown = UNKNOWN
    memory: int | Unknown = UNKNOWN
    work: int | Unknown = UNKNOWN
    others: tuple[OtherProcess, ...] = ()


NOT_READ = DeviceReading()


class Reading(NamedTuple):
    """What was read at one moment.

    Parameters
    ----------
    at
        `time.perf_counter()` then.
    devices
        What the driver says of each device, by its UUID.
    pools
        The memory of each framework, by the framework's name, and what it calls the device.

    """

    at: float
    devices: Mapping[str, DeviceReading]
    pools: Mapping[str, Mapping[str, MemoryPool]]

    def used(self, name: str) -> int | None:
        """Return how many bytes frameworks' arrays take on `cuda:i`; None where none counts them."""
        found = [pools[name].used for pools in self.pools.values() if name in pools]
        return sum(found) if found else None


def read(session: Session, uuids: tuple[str, ...], since: float | None) -> Reading:
    """Read it now.

    Parameters
    ----------
    session
        This process's.
    uuids
        Which devices the driver is asked about.
    since
        When the block began, in seconds since the epoch; None before it: energy and memory are read alone.

    """
    counters = read_counters(session, uuids, since) if uuids else {}
    devices = {uuid: _device_reading(session, one, since) for uuid, one in counters.items()}
    pools: dict[str, Mapping[str, MemoryPool]] = {}
    for framework in imported():
        found: Mapping[LogicalDevice, MemoryPool] = {}
        with contextlib.suppress(Exception):  # after an error of CUDA's, each call can raise it again
            found = framework.pools()
        if found:
            pools[framework.name] = {str(device): pool for device, pool in found.items()}
    return Reading(time.perf_counter(), devices, pools)


def _device_reading(session: Session, counters: Counters, since: float | None) -> DeviceReading:
    memory = {} if counters.memory is UNKNOWN else counters.memory
    work = {} if counters.work is UNKNOWN else counters.work
    processes = {pid: look_up_process(session, pid) for pid in memory.keys() | work.keys()}
    # Where the driver does not count work, who has memory can be at work. Before a block it is not asked.
    at_work = processes if counters.work is UNKNOWN and since is not None else work
    others = tuple(_other(pid, processes[pid]) for pid in at_work if _is_others(pid, processes[pid]))
    return DeviceReading(
        counters.energy,
        counters.utilization,
        UNKNOWN if counters.memory is UNKNOWN else _own(memory, processes),
        UNKNOWN if counters.work is UNKNOWN else _own(work, processes),
        others,
    )


def _own(figures: Mapping[int, int | Unknown], processes: Mapping[int, Process]) -> int | Unknown:
    """Return the sum of what is this process's. In a container numbers are not ours, and any can be."""
    own = [size for pid, size in figures.items() if processes[pid].mine]
    known = [one for one in own if one is not UNKNOWN]
    # By identity: twenty times a second, for each process on each GPU, equality takes a fifth of the time.
    if len(known) < len(own) or (not own and any(processes[pid] is UNKNOWN_PROCESS for pid in figures)):
        return UNKNOWN
    return sum(known)


def _is_others(pid: int, process: Process) -> bool:
    """Return whether a process is known to be somebody else's job."""
    if process.mine or process is UNKNOWN_PROCESS:
        return False
    return not GpuProcess(pid, process.name, process.owner, UNKNOWN).is_mps_server


def _other(pid: int, process: Process) -> OtherProcess:
    name = "a process" if process.name is UNKNOWN else str(process.name)
    return OtherProcess(pid, name, "" if process.owner is UNKNOWN else str(process.owner))
