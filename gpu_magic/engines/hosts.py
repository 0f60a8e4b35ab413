"""The GPUs of all hosts that engines run on, as the engines see them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpu_magic.devices.inventory import Inventory
from gpu_magic.devices.model import Gpu, MigInstance
from gpu_magic.devices.status import GpuStatus
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.engines.introduction import read_gpus
from gpu_magic.process.view import KernelView, Snapshot
from gpu_magic.selection.select import vendor_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpu_magic.devices.model import Device
    from gpu_magic.engines.cluster import Cluster
    from gpu_magic.engines.engine import Engine

__all__ = ["Hosts", "read_hosts"]

# A process on a device: the device's UUID, and the number of the process.
_Used = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Hosts:
    """The hosts of a cluster at one moment.

    Parameters
    ----------
    snapshots
        The GPUs of each host by its name, and which engines they are visible in.
    notes
        Which engines have not been read, and why: a sentence each.

    """

    snapshots: Mapping[str, Snapshot]
    notes: Sequence[str]


def read_hosts(cluster: Cluster) -> Hosts:
    """Have all idle engines read their machines, and put together what those of one host have read."""
    answers = cluster.ask(read_gpus)
    engines: dict[str, list[Engine]] = {}
    for engine in cluster.engines.values():
        engines.setdefault(engine.host, []).append(engine)
    snapshots, ended = {}, cluster.ended
    for host, there in engines.items():
        read = [answers.results[engine.number] for engine in there if engine.number in answers.results]
        snapshots[host] = _snapshot(there, read, [engine for engine in there if engine not in ended])
    return Hosts(snapshots, cluster.unanswered(answers))


def _snapshot(engines: Sequence[Engine], read: Sequence[Inventory], alive: Sequence[Engine]) -> Snapshot:
    """Return what engines of one host have read: one can see GPUs that another is not allowed to see."""
    ours = {used for inventory in read for used in _used_by_us(inventory)}
    pids = {engine.process[0] for engine in engines}
    gpus: dict[object, Gpu] = {}
    known = tuple(gpu for engine in engines for gpu in _without_figures(engine.devices))
    for gpu in (*(gpu for inventory in read for gpu in inventory), *known):
        gpus.setdefault(gpu.number_text if gpu.uuid is UNKNOWN else gpu.uuid, _with_ours(gpu, ours, pids))
    first = read[0] if read else Inventory(simulated="not read now" if engines[0].is_simulated else "")
    names = {
        str(device.uuid): f"cuda:{ordinal} of engine {engine.number}"
        for engine in alive
        for ordinal, device in enumerate(engine.devices)
    }
    return Snapshot(
        tuple(sorted(gpus.values(), key=lambda gpu: (gpu.prefix, gpu.index))),
        first.driver_version,
        first.cuda_version,
        first.simulated,
        first.problem,
        first.limitation,
        kernel=KernelView(None, None, None, None, names, None, "", "", vendor=vendor_of(engines[0].devices)),
    )


def _used_by_us(inventory: Inventory) -> Iterator[_Used]:
    for device in inventory.devices:
        if device.status.processes is not UNKNOWN:
            yield from ((str(device.uuid), one.pid) for one in device.status.processes if one.mine)


def _with_ours(gpu: Gpu, ours: set[_Used], pids: set[int]) -> Gpu:
    """Return a GPU as it was read, with the processes of all engines marked as ours, without our claims."""
    mig = tuple(replace(one, status=_status(one, ours, pids)) for one in gpu.mig)
    return replace(gpu, status=_status(gpu, ours, pids), mig=mig)


def _status(device: Device, ours: set[_Used], pids: set[int]) -> GpuStatus:
    claims = tuple(claim for claim in device.status.claims if claim.pid not in pids)
    status = replace(device.status, claims=claims)
    if status.processes is UNKNOWN:
        return status
    marked = tuple(replace(one, mine=(str(device.uuid), one.pid) in ours) for one in status.processes)
    return replace(status, processes=marked)


def _without_figures(devices: Sequence[Device]) -> Iterator[Gpu]:
    """Yield an engine's GPUs as they are known from its start."""
    for device in devices:
        if isinstance(device, MigInstance):
            instance = replace(device, status=GpuStatus())
            # Its GPU is not known, but for its number; it is left out where another engine has read it.
            yield Gpu(device.gpu_index, mig=(instance,), is_split=True)
        else:
            yield replace(device, status=GpuStatus())
