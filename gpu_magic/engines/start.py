"""Starts a cluster on this machine."""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpu_magic.claims.held import Claims
from gpu_magic.engines.cluster import Cluster
from gpu_magic.engines.engine import Engine
from gpu_magic.engines.processes import LocalProcesses
from gpu_magic.errors import ClusterError
from gpu_magic.launching.devices import divide, pick
from gpu_magic.process.view import read_machine
from gpu_magic.text import counted, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.devices.model import Device
    from gpu_magic.gpus.select import Selection
    from gpu_magic.process.session import Session

__all__ = ["Client", "import_ipyparallel", "is_client", "start"]

Client = Any  # ipyparallel's, which has no types

_CONTROLLER = 60.0  # seconds that it may take to answer
_log = logging.getLogger("gpu_magic.engines")


def start(session: Session, gpus: str | None, count: int | None, *, force: bool = False) -> Cluster:
    """Start one engine for each GPU; return when all of them have answered.

    Parameters
    ----------
    session
        This process's.
    gpus
        As typed after `%gpus`; None: those that this process has, in their order.
    count
        How many of these, the first ones; None: all.
    force
        Allow GPUs outside what this process was started with.

    Raises
    ------
    ChoiceError, ClusterError, LaunchError
        One line that says why there is no cluster; nothing of it is left.

    """
    ipyparallel = import_ipyparallel()
    claims = Claims("engines", session.access)
    try:
        parts = divide(pick(session, gpus, count, force=force, claims=claims))
        return _start(session, ipyparallel, parts)
    finally:  # the engines have claimed them
        claims.release()


def _start(session: Session, ipyparallel: Any, parts: Sequence[Selection]) -> Cluster:
    is_simulated = bool(read_machine(session).simulated)
    engines = [
        Engine(number, _devices(part), is_simulated=is_simulated, claims=session.claims.are_wanted)
        for number, part in enumerate(parts)
    ]
    processes = LocalProcesses(parts)
    cluster = None
    try:
        client = ipyparallel.Client(str(processes.connection_file()), timeout=_CONTROLLER)
        cluster = Cluster(client, engines, processes)
        processes.let_engines_come()
        cluster.begin()
    except BaseException:  # an interrupt, too
        (cluster.stop if cluster else processes.end)()
        raise
    devices = [device.label for engine in engines for device in engine.devices]
    _log.info("Started %s on %s", counted(len(engines), "engine"), listed(devices))
    return cluster


def import_ipyparallel() -> Any:
    """Return ipyparallel.

    Raises
    ------
    ClusterError
        It is not installed.

    """
    try:
        return import_module("ipyparallel")
    except ImportError:
        raise ClusterError(
            "Engines are ipyparallel's, which is not installed here: pip install ipyparallel cloudpickle."
        ) from None


def is_client(value: object) -> bool:
    """Return whether this is a client of ipyparallel's."""
    ipyparallel = sys.modules.get("ipyparallel")
    return ipyparallel is not None and isinstance(value, ipyparallel.Client)


def _devices(part: Selection) -> tuple[Device, ...]:
    assert isinstance(part.devices, tuple)  # noqa: S101 - `divide` has made it
    return part.devices
