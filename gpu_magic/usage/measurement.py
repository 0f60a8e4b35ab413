"""Measures a block from its begin to its end: what was read before it, while it ran, and after it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.usage.cpu_time import cpu_time

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpu_magic.usage.reading import DeviceReading, Reading
    from gpu_magic.usage.record import OtherProcess
    from gpu_magic.usage.targets import Machine

__all__ = ["Measurement", "Seen"]

_MOST_OTHERS = 8
_MOST_READINGS = 240


class Seen:
    """What was seen of a device in any reading while a block ran, and after it.

    Attributes
    ----------
    memory
        The most bytes that this process had there; None: never known.
    has_worked
        Whether it has worked there; None: nobody tells who works.
    can_have_worked
        Whether it was busy, while no other process had memory there and this one did.
    others
        The other processes.

    """

    __slots__ = ("can_have_worked", "has_worked", "memory", "others")

    def __init__(self) -> None:
        self.memory: int | None = None
        self.has_worked: bool | None = None
        self.can_have_worked = False
        self.others: dict[OtherProcess, None] = {}

    def add(self, reading: DeviceReading) -> None:
        if reading.memory is not UNKNOWN:
            self.memory = max(reading.memory, self.memory or 0)
        if reading.work is not UNKNOWN:
            self.has_worked = bool(self.has_worked) or reading.work > 0
        if UNKNOWN not in (reading.utilization, reading.memory) and reading.utilization and reading.memory:
            self.can_have_worked = self.can_have_worked or not reading.others
        if len(self.others) < _MOST_OTHERS:
            self.others.update(dict.fromkeys(reading.others))


class Measurement:
    """A block that is measured.

    Parameters
    ----------
    machine
        The devices that this process sees.
    first
        What was read before the block.
    reset
        The frameworks whose peaks were reset after that.

    Attributes
    ----------
    started
        When it began, in seconds since the epoch; `began` is the same by `time.perf_counter()`.
    readings
        What was read, in order. Of a long block not every reading is kept: they are as far apart at the
        beginning as at the end. What must not be missed is in `seen`.
    seen
        What was seen of each device in any reading, by its UUID.
    most_used
        The most bytes that frameworks' arrays took in any reading, by what they call the device.
    peaks
        The most memory that a framework has counted on a device within the block, by both names, in bytes;
        none where it has counted more before the block.

    """

    def __init__(self, machine: Machine, first: Reading, reset: Collection[str]) -> None:
        self.machine = machine
        self.uuids = tuple(target.uuid for target in machine.targets)
        self.readings = [first]
        self.seen: dict[str, Seen] = {}
        self.most_used: dict[str, int] = {}
        self.peaks: dict[tuple[str, str], int] = {}
        self._reset, self._gap, self._passed = reset, 1, 0
        self.started, self._cpu = time.time(), cpu_time()
        self.began = time.perf_counter()

    def add(self, reading: Reading) -> None:
        """Take a reading while the block runs."""
        self._note(reading)
        self._passed += 1
        if self._passed % self._gap == 0:
            self.readings.append(reading)
        if len(self.readings) > _MOST_READINGS:
            self.readings, self._gap = self.readings[::2], self._gap * 2

    def add_last(self, reading: Reading) -> None:
        """Take the reading after the block, which is kept in any case."""
        self._note(reading)
        self.keep_peaks(reading)
        self.readings.append(reading)

    def _note(self, reading: Reading) -> None:
        for uuid, one in reading.devices.items():
            self.seen.setdefault(uuid, Seen()).add(one)
        for name in {name for pools in reading.pools.values() for name in pools}:
            self.most_used[name] = max(reading.used(name) or 0, self.most_used.get(name, 0))

    def was_reset(self, frameworks: Collection[str]) -> None:
        """Take note that frameworks count their peaks anew: what they count from here on is of this block."""
        self._reset = {*self._reset, *frameworks}

    def keep_peaks(self, reading: Reading) -> None:
        """Take note of the frameworks' peaks, at the end or because they are about to be reset."""
        first = self.readings[0].pools
        for framework, pools in reading.pools.items():
            for device, pool in pools.items():
                before = first.get(framework, {}).get(device)
                known = 0 if before is None or framework in self._reset else before.peak
                if pool.peak is not None and known is not None and pool.peak > known:
                    key = framework, device
                    self.peaks[key] = max(pool.peak, self.peaks.get(key, 0))

    @property
    def since(self) -> float:
        """When it began, in seconds since the epoch by the clock of now, which can have been set."""
        return time.time() - (time.perf_counter() - self.began)

    def stop(self) -> tuple[float, float, float]:
        """Return the seconds since it began, and those of CPU time: this process's own code, the system's."""
        wall = time.perf_counter() - self.began
        user, system = cpu_time()
        return wall, user - self._cpu[0], system - self._cpu[1]
