"""Whether this kernel is idle: no cell, and no work on a GPU since, of its own or of what it has started."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.devices.idle import Idleness
from gpu_magic.devices.machine_reader import MachineReader
from gpu_magic.devices.model import UNKNOWN, Claim
from gpu_magic.devices.processes import program_text
from gpu_magic.errors import GpuMagicError
from gpu_magic.process.drivers import probe
from gpu_magic.process.session import current
from gpu_magic.process.view import Snapshot
from gpu_magic.process.watch import cuda_watch
from gpu_magic.processes.tasks import tasks
from gpu_magic.text import listed, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.devices.model import Inventory

__all__ = ["OwnRest", "Rest", "runs_cell", "runs_task"]

_UNKNOWN = "Whether this kernel works on a GPU is unknown."


class Rest(NamedTuple):
    """How many whole seconds this kernel has been idle, or what keeps it from being idle, as a sentence."""

    seconds: int
    why_not: str = ""


def runs_cell() -> bool:
    """Return whether a cell runs, also one in the background."""
    return bool(cuda_watch.is_at_work())


def runs_task() -> bool:
    """Return whether a cell or a command runs in the background."""
    return any(task.is_running for task in tasks)


class OwnRest:
    """Looks at this kernel's work on GPUs.

    The reader is not the session's: a reader tells of work only once, and other parts use that one.
    """

    def __init__(self) -> None:
        self._reader, self._idleness = MachineReader(), Idleness()

    def look(self, since_cell: int) -> Rest:
        """Return how long this kernel has been idle, given the seconds since the last cell.

        The first look does not know the work of each process, so it can miss work. In a gap of more than 15
        seconds between two looks, work can be missed.
        """
        try:
            machine = self._reader.inventory()
        except GpuMagicError:  # an invalid simulation
            return Rest(0, _UNKNOWN)
        if why := next(_in_use(machine), ""):
            return Rest(0, why)
        # As other processes see this one by its claims, on all GPUs that it can use.
        own = (Claim("", 0.0, os.getpid(), idle=max(1, since_cell)),)  # 0: a cell runs
        visible = Snapshot.of(current(), machine, probe()).visible
        devices = machine.devices if visible is UNKNOWN else visible
        names = (one if isinstance(one, str) else one.identity for one in devices)
        machine = machine.with_claims(dict.fromkeys(names, own))
        idle = self._idleness.look(machine, time.monotonic()).get((os.getpid(), True), UNKNOWN)
        if idle is UNKNOWN:
            return Rest(0, _UNKNOWN)
        return Rest(idle) if idle else Rest(0, "This kernel works on a GPU.")

    def close(self) -> None:
        self._reader.close()


def _in_use(machine: Inventory) -> Iterator[str]:
    """Yield what uses GPUs for this kernel, a sentence each, or why that is unknown."""
    if problem := machine.problem or machine.limitation:
        yield f"{_UNKNOWN} {problem}"
    for task in tasks:
        if task.is_running:
            yield f"Task {task.name} of this kernel still runs."
    if commands := {claim.notebook for _, claim in current().claims.of_commands()}:
        yield f"This kernel runs {listed(sorted(commands))}."
    for device in machine.devices:
        for one in () if device.status.users is UNKNOWN else device.status.users:
            if one.is_this_process is True and one.pid != os.getpid():
                what = f"{program_text(one)} (pid {one.pid})"
                yield printable(f"{what}, which this kernel has started, uses {device.label}.")
