"""The engines that have certain GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.model import Gpu
from gpu_magic.errors import ClusterError
from gpu_magic.gpus.request import Auto, Everything, Named, parse
from gpu_magic.gpus.select import select_among, vendor_of
from gpu_magic.process.view import read_machine
from gpu_magic.text import listed, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_magic.devices.model import Device
    from gpu_magic.engines.cluster import Cluster
    from gpu_magic.engines.engine import Engine
    from gpu_magic.process.session import Session

__all__ = ["engines_with"]


def engines_with(cluster: Cluster, session: Session, gpus: str) -> list[Engine]:
    """Return the engines that have the GPUs asked for.

    Parameters
    ----------
    cluster
        The engines.
    session
        This process's.
    gpus
        As typed after `%gpus`; a number is the GPU of that number in each machine that has engines, and
        `amd:1` is AMD's there.

    Raises
    ------
    ChoiceError
        It is no request for GPUs, or can't be answered.
    ClusterError
        No engine has one of them.

    """
    engines = list(cluster.engines.values())
    request = parse(gpus)
    if isinstance(request, Everything):
        return [engine for engine in engines if request.vendor in (None, vendor_of(engine.devices))]
    if isinstance(request, Named):
        wanted = [device for name in request.identifiers for device in _named(name, engines)]
    elif isinstance(request, Auto):
        machine = read_machine(session)
        now = {device.uuid: device for device in machine.devices}
        pool = [
            now.get(device.uuid, device)
            for engine in cluster.alive
            for device in engine.devices
            if request.vendor in (None, vendor_of([device]))
        ]
        wanted = [*select_among(request, machine, tuple(pool))]
    else:
        raise ClusterError(f"Engines have GPUs, and {gpus} names none: gpus='all' are all engines.")
    uuids = {device.uuid for device in wanted}
    return [engine for engine in engines if any(device.uuid in uuids for device in engine.devices)]


def _named(name: int | str, engines: Iterable[Engine]) -> Iterable[Device]:
    devices = [device for engine in engines for device in engine.devices]
    found = [device for device in devices if _is(device, name)]
    if not found:
        there = listed(device.label for device in devices)
        what = f"GPU {name}" if isinstance(name, int) else printable(name)
        raise ClusterError(f"No engine has {what}: they have {there}.")
    return found


def _is(device: Device, name: int | str) -> bool:
    if isinstance(name, int):
        return isinstance(device, Gpu) and not device.prefix and device.index == name
    if isinstance(device, Gpu) and device.vendor == "amd" and name == f"amd:{device.index}":
        return True
    return str(device.uuid).startswith(name)
