"""What a device counts, energy, work and memory: read many times a second while a cell is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NO_COUNTERS", "Counters"]


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters of one GPU, or MIG instance, at one moment.

    Parameters
    ----------
    energy
        Joules that the whole GPU has used since the driver was loaded. NVML counts them from Volta on
        (`nvmlDeviceGetTotalEnergyConsumption`).
    utilization
        Percent of the last sampling period, as in `GpuStatus`.
    memory
        Bytes of each process that has memory there, by its number; UNKNOWN where the driver lists none.
    work
        Percent of the time in which each process's kernels ran, by its number, where that was above zero;
        UNKNOWN where the driver does not count it (`nvmlDeviceGetProcessUtilization`).

    """

    energy: float | Unknown = UNKNOWN
    utilization: int | Unknown = UNKNOWN
    memory: Mapping[int, int | Unknown] | Unknown = UNKNOWN
    work: Mapping[int, int] | Unknown = UNKNOWN


NO_COUNTERS = Counters()
