"""What in this kernel has started a process: a task, or the engines of its cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.processes import descends_from
from gpu_magic.engines.current import running_cluster
from gpu_magic.process.own_processes import Manager
from gpu_magic.process.tasks import tasks

if TYPE_CHECKING:
    from gpu_magic.devices.status import GpuProcess
    from gpu_magic.engines.cluster import Cluster

__all__ = ["find_manager"]


def find_manager(process: GpuProcess) -> Manager | None:
    """Return what has started a process; None where that is nothing that this kernel keeps."""
    for task in tasks:
        if process.mine and task.is_running and task.has_started(process.pid):
            return Manager(f"task {task.name}", f"%gpu_tasks {task.name} --stop ends it")
    cluster = running_cluster()
    return _find_engine(process, cluster) if cluster else None


def _find_engine(process: GpuProcess, cluster: Cluster) -> Manager | None:
    for engine in cluster.alive:
        pid, start = engine.process
        # The start tells it from a process with this number on another host.
        is_engine = (pid, start) == (process.pid, str(process.started))
        if is_engine or (cluster.is_here and pid and descends_from(process.pid, (pid,))):
            how = (
                f"%gpu_cluster restart {engine.number} starts it anew, and %gpu_cluster stop ends all engines"
            )
            return Manager(engine.label, how if cluster.can_restart else "")
    return None
