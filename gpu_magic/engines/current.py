"""The cluster that this process uses: one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.processes import descends_from
from gpu_magic.errors import ClusterError
from gpu_magic.processes.processes import Manager, finders
from gpu_magic.text import counted

if TYPE_CHECKING:
    from gpu_magic.devices.model import GpuProcess
    from gpu_magic.engines.cluster import Cluster

__all__ = ["check_none", "current_cluster", "running_cluster", "use"]

_cluster: Cluster | None = None


def running_cluster() -> Cluster | None:
    """Return the cluster; None where there is none."""
    return _cluster if _cluster and not _cluster.is_stopped else None


def current_cluster() -> Cluster:
    """Return the cluster.

    Raises
    ------
    ClusterError
        There is none.

    """
    if running := running_cluster():
        return running
    raise ClusterError("No engines run here: %gpu_cluster starts one for each GPU.")


def check_none() -> None:
    """Raise ClusterError where there is a cluster."""
    if running := running_cluster():
        count = len(running.engines)
        runs, them = ("runs", "it") if count == 1 else ("run", "them")
        raise ClusterError(f"{counted(count, 'engine')} {runs} already: %gpu_cluster stop ends {them}.")


def use(cluster: Cluster) -> None:
    """Use another cluster from here on."""
    global _cluster  # noqa: PLW0603 - a notebook has one
    _cluster = cluster


def _find_engine(process: GpuProcess) -> Manager | None:
    cluster = running_cluster()
    for engine in cluster.alive if cluster else ():
        pid, start = engine.process
        # The start tells it from a process with this number on another host.
        is_engine = (pid, start) == (process.pid, str(process.started))
        if cluster and (is_engine or (cluster.is_here and pid and descends_from(process.pid, (pid,)))):
            how = f"%gpu_cluster restart {engine.number} restarts it, %gpu_cluster stop ends all engines"
            return Manager(engine.label, how if cluster.can_restart else "")
    return None


finders.append(_find_engine)  # so `%gpu_ps` imports nothing of engines if there are none
