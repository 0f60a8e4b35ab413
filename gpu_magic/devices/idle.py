"""How long processes have been idle: no cell and no work of the process or its descendants on a GPU since.

The table, the panel, the status bar, the claims, `gpu-magic ps` and the server's culling share this meaning.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, TypeAlias

from gpu_magic.devices.model import UNKNOWN, Unknown
from gpu_magic.devices.processes import lineage_of, parent_of, session_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpu_magic.devices.model import Gpu, GpuProcess, GpuStatus, Inventory

__all__ = ["LONGEST_GAP", "Idleness", "can_work", "is_working", "seconds_now", "with_idle"]

# A process's number, and whether it is of this PID namespace, as those of claims are. Otherwise it is the
# driver's, of a process that cannot be seen from a container. Equal numbers of both kinds mean nothing.
_Process: TypeAlias = tuple[int, bool]
_Key: TypeAlias = tuple[_Process, int | Unknown]  # with its start
LONGEST_GAP = 15.0  # seconds between two looks. In a longer gap, work can be missed


def seconds_now() -> float:
    """Return the seconds of a clock that only goes forward, if possible also while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class Idleness:
    """The work of processes that this process has seen, look by look."""

    def __init__(self) -> None:
        self._looked_at = -math.inf
        # Since when each process on a GPU has been seen to rest.
        self._rests: dict[_Key, float] = {}
        self._worked: dict[int, float] = {}  # when each process with cells, or a descendant, last worked

    def note(self, machine: Inventory, now: float) -> Inventory:
        """Return the machine with `idle` of processes and claims. See `look`."""
        return with_idle(machine, self.look(machine, now))

    def look(
        self, machine: Inventory, now: float, kernels: Mapping[int, int] | None = None
    ) -> dict[_Process, int | Unknown]:
        """Record which processes work, and return how long each process has been idle, in seconds.

        A process with cells has been idle since its last cell, or since later work on a GPU that was seen, of
        itself or a descendant. Another process has been idle for as long as it was seen to rest. UNKNOWN: it
        may be working, or it is a kernel whose cells are unknown.

        Parameters
        ----------
        machine
            The machine, with the claims of other processes, which tell of their cells.
        now
            Seconds, of a clock that only goes forward.
        kernels
            Seconds since the last cell of further processes, by PID. 0 while a cell runs. The figure of a
            claim goes before any other than 0.

        """
        cells = _cells(machine, kernels or {})
        alone, works = _work(machine, cells)
        before = self._rests if now - self._looked_at <= LONGEST_GAP else {}
        rests = {
            key: now if True in found else before.get(key, now)
            for key, found in alone.items()
            if True in found or UNKNOWN not in found
        }
        worked = {pid: now if True in works[pid] else self._worked.get(pid, -math.inf) for pid in cells}
        # Together, because a panel's thread also looks.
        self._looked_at, self._rests, self._worked = now, rests, worked
        idle: dict[_Process, int | Unknown] = {key: int(now - since) for (key, _), since in rests.items()}
        for pid, seconds in cells.items():
            is_unknown = seconds and True not in works[pid] and UNKNOWN in works[pid]
            idle[pid, True] = UNKNOWN if is_unknown else int(min(seconds, now - worked[pid]))
        return idle


def _cells(machine: Inventory, kernels: Mapping[int, int]) -> dict[int, int]:
    """Return the seconds since the last cell of each process with cells, by PID."""
    cells = dict(kernels)
    for claim in [claim for status in _statuses(machine) for claim in status.claims]:
        if claim.pid is not UNKNOWN and claim.idle is not UNKNOWN and cells.get(claim.pid) != 0:
            cells[claim.pid] = claim.idle
    return cells


def _work(
    machine: Inventory, cells: Mapping[int, int]
) -> tuple[dict[_Key, list[bool | Unknown]], dict[int, list[bool | Unknown]]]:
    """Return whether each process works, GPU by GPU, and whether each with cells or a descendant does."""
    lineage = partial(lineage_of, parent=cache(parent_of), session=cache(session_of))  # many share ancestors
    alone: dict[_Key, list[bool | Unknown]] = {}
    works: dict[int, list[bool | Unknown]] = {pid: [] for pid in cells}
    for pid in [pid for pid, seconds in cells.items() if seconds == 0]:
        for ancestor in cells.keys() & set(lineage(pid)) - {pid}:  # a program that has started a kernel
            works[ancestor].append(True)
    for status in _statuses(machine):
        families: dict[int, list[GpuProcess]] = {}
        users = status.users
        for one in () if users is UNKNOWN else users:
            if not one.is_kernel:
                alone.setdefault((_key(one), one.started), []).append(is_working([one], status))
            for pid in cells.keys() & set(lineage(one.pid) if cells and one.is_seen else ()):
                families.setdefault(pid, []).append(one)
        for pid, family in families.items():
            works[pid].append(is_working(family, status))
        for claim in status.claims:
            if claim.pid in works and can_work(status, only_unseen=True):
                works[claim.pid].append(UNKNOWN)
    return alone, works


def with_idle(machine: Inventory, idle: Mapping[_Process, int | Unknown]) -> Inventory:
    """Return the machine with `idle` of processes and claims."""

    def told(status: GpuStatus) -> GpuStatus:
        processes = status.processes
        if processes is not UNKNOWN:
            processes = tuple([one._replace(idle=idle.get(_key(one), UNKNOWN)) for one in processes])
        claims = []
        for claim in status.claims:
            if claim.pid is not UNKNOWN:
                claims.append(claim._replace(idle=idle.get((claim.pid, True), claim.idle)))
            else:  # any of the processes can be the claim's
                claims.append(claim._replace(idle=UNKNOWN) if can_work(status) else claim)
        return status._replace(processes=processes, claims=tuple(claims))

    def with_told(gpu: Gpu) -> Gpu:
        mig = tuple([one._replace(status=told(one.status)) for one in gpu.mig])
        return gpu._replace(status=told(gpu.status), mig=mig)

    return replace(machine, gpus=tuple(map(with_told, machine)))


def is_working(some: Sequence[GpuProcess], status: GpuStatus) -> bool | Unknown:
    """Return whether some of a device's processes work on it.

    The driver gives no figure of a process at the first look, nor on some GPUs. Then that of the GPU tells
    something: if the GPU rests, or if only these processes use it.
    """
    known = [one.work for one in some if one.work is not UNKNOWN]
    if any(known):
        return True
    if len(known) == len(some) or status.utilization == 0:
        return False
    are_all = status.users is not UNKNOWN and len(some) == len(status.users)
    return True if are_all and status.utilization is not UNKNOWN else UNKNOWN


def can_work(status: GpuStatus, *, only_unseen: bool = False) -> bool:
    """Return whether a process, or one that cannot be seen, works on a device or may be working."""
    if status.users is UNKNOWN:
        return status.utilization != 0
    return is_working([one for one in status.users if not (only_unseen and one.is_seen)], status) is not False


def _key(process: GpuProcess) -> _Process:
    return process.pid, process.is_seen


def _statuses(machine: Inventory) -> Iterator[GpuStatus]:
    for gpu in machine:
        yield gpu.status
        yield from (one.status for one in gpu.mig)
