"""Starts a cluster on this machine, or finds one that has outlived its kernel."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpu_magic.claims.held import Claims
from gpu_magic.engines.cluster import Cluster
from gpu_magic.engines.engine import Engine
from gpu_magic.engines.kept import find_kept
from gpu_magic.engines.processes import LocalProcesses
from gpu_magic.errors import ClusterError
from gpu_magic.launching.devices import divide, pick
from gpu_magic.log import logger
from gpu_magic.process.view import read_machine
from gpu_magic.selection.select import Selection, vendor_of
from gpu_magic.text import counted, listed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpu_magic.devices.model import Device
    from gpu_magic.engines.kept import Kept
    from gpu_magic.process.session import Session

__all__ = ["Client", "attach", "import_ipyparallel", "is_client", "start"]

Client = Any  # ipyparallel's, which has no types

_CONTROLLER = 60.0  # seconds that it may take to answer
_log = logger("engines")


def start(
    session: Session, gpus: str | None, count: int | None, *, force: bool = False, keep: bool = False
) -> Cluster:
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
    keep
        Let them go on when this process ends.

    Raises
    ------
    ChoiceError, ClusterError, LaunchError
        One line that says why there is no cluster; nothing of it is left.

    """
    ipyparallel = import_ipyparallel()
    claims = Claims("engines", session.access)
    try:
        parts = divide(pick(session, gpus, count, force=force, claims=claims))
        return _start(session, ipyparallel, parts, keep=keep)
    finally:  # the engines have claimed them
        claims.release()


def _start(session: Session, ipyparallel: Any, parts: Sequence[Selection], *, keep: bool) -> Cluster:
    is_simulated = bool(read_machine(session).simulated)
    engines = [
        Engine(number, _devices(part), is_simulated=is_simulated, claims=session.claims.are_wanted)
        for number, part in enumerate(parts)
    ]
    processes = LocalProcesses.start_all(parts, outlives=keep)
    cluster = None
    try:
        cluster = Cluster(_client(ipyparallel, processes.connection_file()), engines, processes)
        processes.let_engines_come()
        cluster.begin()
    except BaseException:  # an interrupt, too
        (cluster.stop if cluster else processes.end)()
        raise
    devices = [device.label for engine in engines for device in engine.devices]
    _log.info("Started %s on %s", counted(len(engines), "engine"), listed(devices))
    return cluster


def attach(session: Session, name: str) -> Cluster:
    """Use a cluster that another process has started, and that has outlived it.

    Parameters
    ----------
    session
        This process's.
    name
        Which; empty where there is only one.

    Raises
    ------
    ClusterError
        There is none, or there are several.

    """
    ipyparallel = import_ipyparallel()
    kept = _find(name)
    machine = read_machine(session)
    by_uuid = {device.uuid: device for device in machine.devices}
    engines, parts = [], []
    for number, one in enumerate(kept.engines):
        devices = tuple(by_uuid[uuid] for uuid in one.uuids if uuid in by_uuid)
        engines.append(Engine(number, devices, one.host, one.process, bool(machine.simulated)))
        parts.append(Selection(devices, one.variables, (), vendor_of(devices)))
    processes = LocalProcesses.adopt(kept, parts)
    return Cluster(_client(ipyparallel, processes.connection_file()), engines, processes)


def _find(name: str) -> Kept:
    found = find_kept()
    if not found:
        raise ClusterError("No engines were kept: %gpu_cluster --keep starts some that outlive the kernel.")
    if named := [kept for kept in found if kept.name == name or (not name and len(found) == 1)]:
        return named[0]
    names = [f"%gpu_cluster attach {kept.name} ({counted(len(kept.engines), 'engine')})" for kept in found]
    raise ClusterError(f"Several clusters were kept: {listed(names)}.")


def _client(ipyparallel: Any, connection_file: Path) -> Any:
    return ipyparallel.Client(str(connection_file), timeout=_CONTROLLER)


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
