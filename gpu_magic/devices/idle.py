"""Since when processes on GPUs have done nothing: by their last cell, and by what was seen of them here."""

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
LONGEST_GAP = 15.0  # seconds between two looks: of a longer time nobody knows what was done in it


class Idleness:
    """What this process has seen of the work of processes, look by look."""

    def __init__(self) -> None:
        self._looked_at = -math.inf
        # Since when a process was seen to rest, and whether it was seen to work before.
        self._rests: dict[_Key, tuple[float, bool]] = {}

    def note(self, machine: Inventory, now: float) -> Inventory:
        """Return the machine with `idle` of processes and claims; take note of who works.

        A process rests while it works on none of its GPUs. Its last cell says more than what was seen; work
        that was seen since, as of a thread, says more than the last cell. The machine has others' claims, and
        the clock of `now` only goes forward, in seconds.
        """
        before = self._rests if now - self._looked_at <= LONGEST_GAP else {}
        rests = {}
        for key, figures in _work(machine).items():
            if any(figure is not UNKNOWN and figure > 0 for figure in figures):
                rests[key] = now, True
            elif UNKNOWN not in figures:
                rests[key] = before.get(key, (now, False))
        self._looked_at, self._rests = now, rests  # at once: a panel's thread looks, too
        idle: dict[int | Unknown, int] = {}
        for claim in [claim for status in _statuses(machine) for claim in status.claims]:
            if claim.idle is not UNKNOWN:
                idle[claim.pid] = claim.idle
        idle.pop(UNKNOWN, None)  # their claims say it by themselves
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
    """Return in percent how each process works on its GPUs; of one that is alone there, the GPU's figure."""
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
