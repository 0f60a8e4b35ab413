"""What a block has used of a GPU, from what was read of it: pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.text import listed
from gpu_magic.usage.measurement import Seen
from gpu_magic.usage.reading import NOT_READ
from gpu_magic.usage.record import GpuUsage, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpu_magic.usage.measurement import Measurement
    from gpu_magic.usage.reading import DeviceReading, Reading
    from gpu_magic.usage.targets import Target

__all__ = ["analyze"]

# NVML's utilization is of the time before it is read, a sixth of a second to a second (`nvmlUtilization_t`).
_SHORTEST_PERIOD, _LONGEST_PERIOD = 1 / 6, 1.0  # seconds
_MOST_OTHERS = 8


class _Memory(NamedTuple):
    """A process's memory on a device over time, in bytes, by one source; None: nothing was known then."""

    series: Sequence[int | None]
    peak: int | None
    source: str
    is_exact: bool


def analyze(block: Measurement, target: Target, wall: float, *, only_touched: bool) -> GpuUsage | None:
    """Return what a block that has ended has used of a device; None where it has used nothing of it.

    Parameters
    ----------
    block
        The block; its last reading was made after it.
    target
        The device.
    wall
        The seconds that the block took.
    only_touched
        Whether memory that this process had there before, and still has, does not count as use.

    """
    readings = [one.devices.get(target.uuid, NOT_READ) for one in block.readings]
    seen = block.seen.get(target.uuid, Seen())
    memory = _memory(block, readings, seen, target.name)
    if not _is_used(block.readings, seen, memory, target.name, only_touched=only_touched):
        return None
    times = [reading.at - block.began for reading in block.readings]
    busy = _mean([one.utilization for one in readings], times, wall)
    at_first, at_last = memory.series[0], memory.series[-1]
    return GpuUsage(
        name=target.name,
        gpu=target.gpu,
        model=target.model,
        uuid=target.uuid,
        busy=busy,
        busy_own=_mean([one.work for one in readings], times, wall),
        idle=UNKNOWN if busy is UNKNOWN else wall * (1 - busy / 100),
        peak=UNKNOWN if memory.peak is None else memory.peak,
        peak_by=memory.source,
        is_exact=memory.is_exact,
        stayed=UNKNOWN if at_first is None or at_last is None else at_last - at_first,
        energy=_energy(readings),
        others=tuple(seen.others)[:_MOST_OTHERS],
        samples=tuple(_samples(times, memory.series, readings)),
    )


def _is_used(
    readings: Sequence[Reading],
    seen: Seen,
    memory: _Memory,
    name: str,
    *,
    only_touched: bool,
) -> bool:
    """Return whether a block has worked on a device, or has taken or given back memory there."""
    at_first, at_last, peak = memory.series[0], memory.series[-1], memory.peak or 0
    if peak and not only_touched:
        return True
    is_known = at_first is not None and at_last is not None
    if (is_known and at_first != at_last) or peak > (at_first or 0):
        return True
    has_made = _allocations(readings[-1], name) > _allocations(readings[0], name)
    # Where nobody says who works, it was this process if no other one has memory there.
    return has_made or (seen.can_have_worked if seen.has_worked is None else seen.has_worked)


def _memory(block: Measurement, by_driver: Sequence[DeviceReading], seen: Seen, name: str) -> _Memory:
    """Return the memory on a device as frameworks count it; as the driver does where they count none."""
    readings = block.readings
    frameworks = dict.fromkeys(
        framework for reading in readings for framework, pools in reading.pools.items() if name in pools
    )
    series = [reading.used(name) or 0 for reading in readings]
    counted = [block.peaks.get((framework, name)) for framework in frameworks]
    most = max(block.most_used.get(name, 0), series[0])
    peak = max(most, sum(one or 0 for one in counted)) if frameworks else 0
    if peak:
        return _Memory(series, peak, listed(frameworks), None not in counted)
    driver = [None if one.memory is UNKNOWN else one.memory for one in by_driver]
    known = [size for size in (driver[0], seen.memory) if size is not None]
    return _Memory(driver, max(known, default=None), "driver" if known else "", is_exact=False)


def _mean(figures: Sequence[int | Unknown], times: Sequence[float], wall: float) -> float | Unknown:
    """Return the mean of a figure of the time before it is read; UNKNOWN for a block that is shorter."""
    if wall < _LONGEST_PERIOD:
        return UNKNOWN
    known = [
        figure
        for figure, at in zip(figures, times, strict=True)
        if figure is not UNKNOWN and at >= _SHORTEST_PERIOD
    ]
    return sum(known) / len(known) if known else UNKNOWN


def _energy(readings: Sequence[DeviceReading]) -> float | Unknown:
    """Return joules. A counter that has not moved has not been brought up to date; or it was set back."""
    first, last = readings[0].energy, readings[-1].energy
    if first is UNKNOWN or last is UNKNOWN or last <= first:
        return UNKNOWN
    return last - first


def _allocations(reading: Reading, name: str) -> int:
    """Return how many allocations frameworks have ever made on a device, as far as they count them."""
    return sum(pools[name].allocations or 0 for pools in reading.pools.values() if name in pools)


def _samples(
    times: Sequence[float], memory: Sequence[int | None], readings: Sequence[DeviceReading]
) -> Iterator[Sample]:
    for at, size, one in zip(times, memory, readings, strict=True):
        yield Sample(max(0.0, at), UNKNOWN if size is None else size, one.utilization)
