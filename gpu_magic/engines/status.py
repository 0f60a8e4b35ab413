"""What engines do now, and how much memory is in use on their GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gpu_magic.devices.model import UNKNOWN, Unknown
from gpu_magic.engines.introduction import read_gpus
from gpu_magic.process.view import read_machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.devices.model import Device, Inventory
    from gpu_magic.engines.cluster import Cluster
    from gpu_magic.engines.engine import Engine
    from gpu_magic.process.session import Session

__all__ = ["EngineStatus", "read_status"]


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """An engine at one moment.

    Parameters
    ----------
    engine
        Which.
    state
        What it does.
    seconds
        For how long it has done that, to the second.
    used, total
        The memory of its GPUs in bytes: in use by whomever, and in all.

    """

    engine: Engine
    state: Literal["busy", "idle", "ended"]
    seconds: float
    used: int | Unknown
    total: int | Unknown


def read_status(cluster: Cluster, session: Session) -> list[EngineStatus]:
    """Ask ipyparallel's controller what the engines do, and read their machines."""
    busy, ended = cluster.busy, cluster.ended
    there = dict(_devices(cluster, session))
    found = []
    for engine in cluster.engines.values():
        state: Literal["busy", "idle", "ended"] = (
            "ended" if engine in ended else "busy" if engine in busy else "idle"
        )
        now = [there.get((engine.host, str(device.uuid))) for device in engine.devices]
        used = [UNKNOWN if device is None else device.status.memory_used for device in now]
        total = [device.memory_total for device in engine.devices]
        seconds = cluster.activity.seconds(engine.number)
        found.append(EngineStatus(engine, state, seconds, _sum(used), _sum(total)))
    return found


def _devices(cluster: Cluster, session: Session) -> Iterator[tuple[tuple[str, str], Device]]:
    """Yield all that can be read now, each with its host and its UUID."""
    inventories: list[tuple[str, Inventory]]
    if cluster.is_here:
        inventories = [(next(iter(cluster.engines.values())).host, read_machine(session))]
    else:
        read = cluster.ask(read_gpus).results
        inventories = [(cluster.engines[number].host, inventory) for number, inventory in read.items()]
    for host, inventory in inventories:
        yield from (((host, str(device.uuid)), device) for device in inventory.devices)


def _sum(sizes: list[int | Unknown]) -> int | Unknown:
    known = [size for size in sizes if size is not UNKNOWN]
    return sum(known) if len(known) == len(sizes) else UNKNOWN
