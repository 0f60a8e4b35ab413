"""The latest reading of the machine, and what is different from the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.gpus.options import plan_memory, split_request
from gpu_magic.gpus.request import parse
from gpu_magic.gpus.select import select
from gpu_magic.process.drivers import probe
from gpu_magic.process.given import Given
from gpu_magic.process.session import current
from gpu_magic.process.view import take_snapshot
from gpu_magic.widget.serialization import NO_MACHINE, serialize

if TYPE_CHECKING:
    from gpu_magic.process.view import Snapshot
    from gpu_magic.widget.serialization import MachineChanges, SerializedMachine

__all__ = ["Reading", "Readings", "read"]


class Reading(NamedTuple):
    """The machine at one moment, and the same as it is sent."""

    snapshot: Snapshot
    machine: SerializedMachine


def read() -> Reading:
    """Read the machine. On whatever thread: what initialized CUDA is noted on the main one alone."""
    session = current()
    snapshot = take_snapshot(session, probe())
    given = Given(snapshot, session.inherited, session.grant)
    return Reading(snapshot, serialize(snapshot, given, session.memory_options))


class Readings:
    """Keeps the latest reading. Has no lock: `PanelState` guards it."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self.machine = NO_MACHINE
        self._begun = 0
        self._latest = 0  # of those that have ended

    def begin(self) -> int:
        """Return the number of a reading that begins now."""
        self._begun += 1
        return self._begun

    def is_late(self, number: int) -> bool:
        """Return whether a reading that began later has ended already: it was faster."""
        return number < self._latest

    def keep(self, number: int, reading: Reading) -> MachineChanges | None:
        """Keep a reading; return what has changed, None where the devices are not those of before."""
        changes = reading.machine.since(self.machine)
        self._latest = number
        self._snapshot, self.machine = reading
        return changes

    def check(self, request: str) -> None:
        """Check a request of a page, which can send anything.

        Raises
        ------
        ChoiceError
            Its devices can't be chosen, or memory not be limited so. Options alone are no choice yet.

        """
        devices, options = split_request(request)
        if self._snapshot is None or not devices:
            return
        session = current()
        found = select(parse(devices), self._snapshot, session.inherited, grant=session.grant).devices
        if found is not UNKNOWN:
            plan_memory(found, growth=options.growth, limit=options.memory_limit)
