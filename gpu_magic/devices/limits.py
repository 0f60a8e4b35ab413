"""How much power a GPU may draw, and what slows it down: read for the GPUs that somebody looks at closely."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpu_magic.devices.binding import pynvml
from gpu_magic.devices.nvml_calls import ask
from gpu_magic.devices.record import record
from gpu_magic.devices.unknown import UNKNOWN, Unknown

if TYPE_CHECKING:
    from gpu_magic.devices.nvml_calls import Calls

__all__ = ["UNKNOWN_LIMITS", "Limits", "read_limits"]

# NVML's reasons for a lower clock (`nvmlClocksEventReason…`, as bits) that slow work down. Idleness, clocks
# that a user has set, and those of a display do not.
_SLOWDOWNS = (
    (0x04, "power limit"),  # SwPowerCap
    (0x20 | 0x40, "heat"),  # SwThermalSlowdown, HwThermalSlowdown
    (0x80, "power supply"),  # HwPowerBrakeSlowdown: the machine asks for it
    (0x10, "another GPU of its sync boost group"),  # SyncBoost
)
# HwSlowdown is set together with the reasons of hardware above, and alone where the driver has no finer one.
_HARDWARE = 0x08
_FINER = 0x40 | 0x80


@record
class Limits:
    """What holds a GPU back.

    Parameters
    ----------
    power
        The power in watts that it may draw, as the driver enforces it.
    slowdowns
        What slows it down now, in a few words each.

    """

    power: float | Unknown = UNKNOWN
    slowdowns: tuple[str, ...] | Unknown = UNKNOWN


UNKNOWN_LIMITS = Limits()


def read_limits(handle: Any, calls: Calls) -> Limits:
    """Read what holds a GPU back.

    Parameters
    ----------
    handle
        The GPU's.
    calls
        The calls that have versions.

    Raises
    ------
    pynvml.NVMLError_GpuIsLost
        Nothing of the GPU can be read.

    """
    power = ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)  # milliwatts
    reasons = calls.clock_reasons(handle)
    return Limits(
        UNKNOWN if power is UNKNOWN else power / 1000,
        UNKNOWN if reasons is UNKNOWN else _slowdowns(reasons),
    )


def _slowdowns(reasons: int) -> tuple[str, ...]:
    found = [words for bits, words in _SLOWDOWNS if reasons & bits]
    if reasons & _HARDWARE and not reasons & _FINER:
        found.append("hardware")
    return tuple(found)
