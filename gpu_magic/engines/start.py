"""Starts a cluster on this machine, or makes one of somebody else's engines."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpu_magic.engines.cluster import Cluster
from gpu_magic.engines.processes import LocalProcesses
from gpu_magic.errors import ClusterError
from gpu_magic.launching.devices import divide, pick
from gpu_magic.process.view import read_machine

if TYPE_CHECKING:
    from gpu_magic.devices.model import Device
    from gpu_magic.process.session import Session
    from gpu_magic.selection.select import Selection

__all__ = ["import_ipyparallel", "start"]

_CONTROLLER = 60.0  # seconds that it may take to answer


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
    parts = divide(pick(session, gpus, count, force=force))
    is_simulated = bool(read_machine(session).simulated)
    processes = LocalProcesses(parts, outlives=keep)
    client = None
    try:
        client = ipyparallel.Client(str(processes.connection_file()), timeout=_CONTROLLER)
        return Cluster(client, [_devices(part) for part in parts], processes, is_simulated=is_simulated)
    except BaseException:  # an interrupt, too
        if client is not None:
            client.close()
        processes.end()
        raise


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
            "Engines are ipyparallel's, which is not installed here: pip install 'gpu_magic[cluster]'."
        ) from None


def _devices(part: Selection) -> tuple[Device, ...]:
    assert isinstance(part.devices, tuple)  # noqa: S101 - `divide` has made it
    return part.devices
