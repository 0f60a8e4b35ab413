"""Divides the GPUs of hosts among the engines there: a pure function of what each engine was given."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, groupby
from typing import TYPE_CHECKING

from gpu_magic.devices.model import MigInstance
from gpu_magic.errors import ClusterError
from gpu_magic.gpus.select import vendor_of
from gpu_magic.process.mask import names_of
from gpu_magic.text import counted, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpu_magic.devices.model import Device

__all__ = ["Allotted", "divide"]


@dataclass(frozen=True, slots=True)
class Allotted:
    """An engine, and what it may use.

    Parameters
    ----------
    number
        The engine's.
    host
        Its machine.
    devices
        What it was given there, in an order.

    """

    number: int
    host: str
    devices: tuple[Device, ...]

    @property
    def uuids(self) -> frozenset[str]:
        return frozenset(str(device.uuid) for device in self.devices)


def divide(engines: Sequence[Allotted]) -> dict[int, tuple[Device, ...]]:
    """Return the devices of each engine, by its number: within what it was given, and no device twice.

    Engines of one host that were given the same devices get a contiguous share each, in the order of their
    numbers; the first ones get one more where it does not come out even. Engines that were given devices of
    their own keep them. A process can use one MIG instance, so that of MIG instances each engine gets one.

    Raises
    ------
    ClusterError
        One line that names the host: engines there were given devices that overlap without being the same,
        or there are fewer devices than engines.

    """
    shares: dict[int, tuple[Device, ...]] = {}
    by_place = sorted(engines, key=lambda engine: (engine.host, engine.number))
    for host, there in groupby(by_place, key=lambda engine: engine.host):
        alike: dict[frozenset[str], list[Allotted]] = {}
        for engine in there:
            alike.setdefault(engine.uuids, []).append(engine)
        groups = list(alike.values())
        for one, other in combinations(groups, 2):
            if one[0].uuids & other[0].uuids:
                variable = names_of(vendor_of(one[0].devices))[0]
                raise ClusterError(
                    f"On {host} {_given(one)} and {_given(other)}, which overlap: give all engines of a host "
                    f"the same {variable}, or each its own GPUs."
                )
        for group in groups:
            shares.update(_shares(host, group))
    return {number: shares[number] for number in sorted(shares)}


def _shares(host: str, group: Sequence[Allotted]) -> Iterator[tuple[int, tuple[Device, ...]]]:
    """Yield the share of each of some engines that were given the same."""
    devices = group[0].devices
    if len(devices) < len(group):
        has = f"On {host} {_engines(group)} {'has' if len(group) == 1 else 'have'}"
        if not devices:
            raise ClusterError(f"{has} no GPU that can be used: start engines where GPUs are.")
        raise ClusterError(
            f"{has} {counted(len(devices), 'GPU')} ({_labels(devices)}): one engine needs one at least."
        )
    if any(isinstance(device, MigInstance) for device in devices):
        devices = devices[: len(group)]
    size, more = divmod(len(devices), len(group))
    begin = 0
    for place, engine in enumerate(group):
        end = begin + size + (place < more)
        yield engine.number, devices[begin:end]
        begin = end


def _given(group: Sequence[Allotted]) -> str:
    verb = "was" if len(group) == 1 else "were"
    return f"{_engines(group)} {verb} given {_labels(group[0].devices)}"


def _engines(group: Sequence[Allotted]) -> str:
    numbers = listed(str(engine.number) for engine in group)
    return f"engine{'' if len(group) == 1 else 's'} {numbers}"


def _labels(devices: Sequence[Device]) -> str:
    return listed(device.label for device in devices)
