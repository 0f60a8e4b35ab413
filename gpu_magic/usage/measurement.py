"""Measures a block from its begin to its end: what was read before it, while it ran, and after it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gpu_magic.usage.cpu_time import cpu_time

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpu_magic.usage.reading import Reading
    from gpu_magic.usage.targets import Machine

__all__ = ["Measurement"]

_MOST_READINGS = 240


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
        beginning as at the end.
    peaks
        The most memory that a framework has counted on a device within the block, by both names, in bytes;
        none where it has counted more before the block.

    """

    def __init__(self, machine: Machine, first: Reading, reset: Collection[str]) -> None:
        self.machine = machine
        self.uuids = tuple(target.uuid for target in machine.targets)
        self.readings = [first]
        self.peaks: dict[tuple[str, str], int] = {}
        self._reset, self._gap, self._passed = reset, 1, 0
        self.started, self._cpu = time.time(), cpu_time()
        self.began = time.perf_counter()

    def add(self, reading: Reading) -> None:
        """Take a reading while the block runs."""
        self._passed += 1
        if self._passed % self._gap == 0:
            self.readings.append(reading)
        if len(self.readings) > _MOST_READINGS:
            self.readings, self._gap = self.readings[::2], self._gap * 2

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
        self._reset = {*self._reset, *reading.pools}  # from here on all that is counted is of this block

    def stop(self) -> tuple[float, float, float]:
        """Return the seconds since it began, and those of CPU time: this process's own code, the system's."""
        wall = time.perf_counter() - self.began
        user, system = cpu_time()
        return wall, user - self._cpu[0], system - self._cpu[1]
