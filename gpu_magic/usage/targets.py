"""The GPUs that are measured: those that this process sees, with what they are called."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.devices.model import Gpu
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.process import driver
from gpu_magic.process.environment import variables_now
from gpu_magic.process.state import probe
from gpu_magic.process.view import take_snapshot

if TYPE_CHECKING:
    from gpu_magic.process.session import Session

__all__ = ["Machine", "MachineCache", "Target"]

_SECONDS = 60.0  # for as long as names and UUIDs are kept by the reader


class Target(NamedTuple):
    """A device that is measured.

    Parameters
    ----------
    uuid
        The driver's.
    name
        What frameworks call it, `cuda:0`; empty where that can't be known.
    gpu
        Its number: `GPU 3`.
    model
        Its name, as the driver has it; empty where it does not tell.

    """

    uuid: str
    name: str
    gpu: str
    model: str


class Machine(NamedTuple):
    """What is known of the machine besides figures.

    Parameters
    ----------
    targets
        In the order in which frameworks count them.
    problem
        Why none can be read, as a sentence; empty where they can.
    driver
        The driver's version; empty for unknown.
    simulated
        The profile, where it is simulated.

    """

    targets: tuple[Target, ...]
    problem: str
    driver: str
    simulated: str


class MachineCache:
    """Finds the devices once for as long as nothing changes that decides which they are."""

    def __init__(self) -> None:
        self._key: object = None
        self._found_at = 0.0
        self._machine: Machine | None = None

    def find(self, session: Session, *, anew: bool = False) -> Machine:
        """Return the devices that this process sees now; `anew` whatever was found before."""
        key = (session, variables_now(), driver().is_initialized(), os.environ.get("GPU_MAGIC_SIMULATE"))
        is_old = time.monotonic() - self._found_at > _SECONDS
        if anew or self._machine is None or is_old or key != self._key:
            self._machine = _find(session)
            self._key, self._found_at = key, time.monotonic()
        return self._machine


def _find(session: Session) -> Machine:
    snapshot = take_snapshot(session, probe())
    names = snapshot.kernel.names
    found = {
        str(device.uuid): Target(
            str(device.uuid),
            "" if names is UNKNOWN else names.get(str(device.uuid), ""),
            device.label,
            "" if device.name is UNKNOWN else str(device.name),
        )
        for device in snapshot.devices
        if not (isinstance(device, Gpu) and device.is_split)  # nothing runs on it but on its instances
    }
    seen = found.values() if names is UNKNOWN else [found[uuid] for uuid in names if uuid in found]
    version = snapshot.driver_version
    return Machine(
        tuple(seen), snapshot.problem, "" if version is UNKNOWN else str(version), snapshot.simulated
    )
