"""How long processes on GPUs have been idle, by their last cell and by the work that this process saw."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from gpu_magic.devices.model import UNKNOWN, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.devices.model import Gpu, GpuStatus, Inventory

__all__ = ["LONGEST_GAP", "Idleness"]

_Key: TypeAlias = "tuple[int, int | Unknown]"  # a process's number and its start
LONGEST_GAP = 15.0  # seconds between two looks. In a longer gap, work can be missed


class Idleness:
    """The work of processes that this process has seen, look by look."""

    def __init__(self) -> None:
        self._looked_at = -math.inf
        # When a process was last seen to work, or else first seen to rest; and whether it was seen to work.
        self._rests: dict[_Key, tuple[float, bool]] = {}

    def note(self, machine: Inventory, now: float) -> Inventory:
        """Return the machine with `idle` of processes and claims, and record which processes work.

        A process rests while it works on none of its GPUs. Its last cell counts more than the time that it
        was seen to rest. Work that was seen after that cell, for example of a thread, counts more than the
        cell. The machine has the claims of other processes. `now` is in seconds, of a clock that only goes
        forward.
        """
        before = self._rests if now - self._looked_at <= LONGEST_GAP else {}
        rests = {}
        for key, figures in _work(machine).items():
            if any(figure is not UNKNOWN and figure > 0 for figure in figures):
                rests[key] = now, True
            elif UNKNOWN not in figures:
                rests[key] = before.get(key, (now, False))
        self._looked_at, self._rests = now, rests  # together, because a panel's thread also looks
        idle: dict[int | Unknown, int] = {}
        for claim in [claim for status in _statuses(machine) for claim in status.claims]:
            if claim.idle is not UNKNOWN:
                idle[claim.pid] = claim.idle
        idle.pop(UNKNOWN, None)  # such claims keep their own figure
        for (pid, _), (since, has_worked) in rests.items():
            seen = int(now - since)
            idle[pid] = min(seen, idle.get(pid, seen)) if has_worked else idle.get(pid, seen)

        def told(status: GpuStatus) -> GpuStatus:
            processes = status.processes
            if processes is not UNKNOWN:
                processes = tuple([replace(one, idle=idle.get(one.pid, UNKNOWN)) for one in processes])
            claims = tuple([replace(one, idle=idle.get(one.pid, one.idle)) for one in status.claims])
            return replace(status, processes=processes, claims=claims)

        def with_told(gpu: Gpu) -> Gpu:
            mig = tuple([replace(one, status=told(one.status)) for one in gpu.mig])
            return replace(gpu, status=told(gpu.status), mig=mig)

        return replace(machine, gpus=tuple(map(with_told, machine))) if idle else machine


def _work(machine: Inventory) -> dict[_Key, list[int | Unknown]]:
    """Return each process's work on its GPUs in percent. If unknown and the process is alone: the GPU's."""
    work: dict[_Key, list[int | Unknown]] = {}
    for status in _statuses(machine):
        users = () if status.users is UNKNOWN else status.users
        for one in users:
            is_alone = one.work is UNKNOWN and len(users) == 1
            work.setdefault((one.pid, one.started), []).append(status.utilization if is_alone else one.work)
    return work


def _statuses(machine: Inventory) -> Iterator[GpuStatus]:
    for gpu in machine:
        yield gpu.status
        yield from (one.status for one in gpu.mig)
