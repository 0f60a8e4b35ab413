"""How much power an AMD GPU may draw, and what slows it down: what `limits` is for NVIDIA's.

MI300 and newer count for how long each reason has held (amdsmi.h, `amdsmi_gpu_metrics_t`, v1.6: "Accumulated
throttler residencies"). What has grown from one look to the next slows the GPU down now, so a first look says
nothing of it. `amdsmi_get_violation_status` takes both looks in one call, for which it waits 100 ms. Other
GPUs tell no more than whether something slows them down.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.limits import Limits
from gpu_magic.devices.unknown import UNKNOWN, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Throttling", "read_limits"]

_SAMPLES = "accumulation_counter"
_REASONS = {
    "ppt_residency_acc": "power limit",  # package power tracking
    "prochot_residency_acc": "heat",
    "socket_thm_residency_acc": "heat",
    "vr_thm_residency_acc": "heat",  # of the voltage regulator
    "hbm_thm_residency_acc": "heat",
}
_WHETHER = ("throttle_status", "indep_throttle_status")
_NO_REASON = "a reason that the driver does not give"
# What isn't known is "N/A", or in older versions of amdsmi the highest number of 32 or 64 bits.
_HIGHEST = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
_LATEST = 5.0  # seconds after a look, until which the next one says what holds now


class Throttling:
    """What slows a GPU down, from one look at its metrics to the next."""

    def __init__(self) -> None:
        self._looked_at = 0.0
        self._before: dict[str, int] = {}
        self._found: tuple[str, ...] | Unknown = UNKNOWN

    def look(self, metrics: Mapping[str, Any], now: float) -> tuple[str, ...] | Unknown:
        """Return what slows it down, in a few words each; UNKNOWN where that isn't told.

        Parameters
        ----------
        metrics
            As `amdsmi_get_gpu_metrics_info` returns them.
        now
            The time of this look, in seconds.

        """
        counts = {name: metrics[name] for name in (_SAMPLES, *_REASONS) if _is_known(metrics.get(name))}
        if _SAMPLES not in counts or len(counts) == 1:
            return _whether(metrics)
        before, is_late = self._before, now - self._looked_at > _LATEST
        samples = counts[_SAMPLES] - before.get(_SAMPLES, 0)
        if before and not is_late and samples == 0:  # the driver has not looked again
            return self._found
        self._looked_at, self._before = now, counts
        self._found = UNKNOWN if not before or is_late or samples < 0 else _grown(before, counts, samples)
        return self._found


def read_limits(ask: Callable[..., Any], handle: Any, throttling: Throttling) -> Limits:
    """Read what holds a GPU back.

    Parameters
    ----------
    ask
        Calls a function of amdsmi by its name; UNKNOWN where the library refuses.
    handle, throttling
        The GPU's.

    """
    cap = ask("amdsmi_get_power_cap_info", handle)
    microwatts = 0 if cap is UNKNOWN else cap.get("power_cap")  # 0 where the library could not read it
    metrics = ask("amdsmi_get_gpu_metrics_info", handle)
    return Limits(
        microwatts / 1e6 if _is_known(microwatts) and microwatts else UNKNOWN,
        UNKNOWN if metrics is UNKNOWN else throttling.look(metrics, time.monotonic()),
    )


def _grown(before: Mapping[str, int], now: Mapping[str, int], samples: int) -> tuple[str, ...] | Unknown:
    """Return the reasons that have held for a hundredth of the time at least, which AMD calls a violation."""
    known = [name for name in _REASONS if name in before and name in now]
    found = [_REASONS[name] for name in known if (now[name] - before[name]) * 100 >= samples]
    return UNKNOWN if not found and len(known) < len(_REASONS) else tuple(dict.fromkeys(found))


def _whether(metrics: Mapping[str, Any]) -> tuple[str, ...] | Unknown:
    """Return whether something slows it down, where no reason is given."""
    told = [metrics[name] for name in _WHETHER if _is_known(metrics.get(name))]
    return ((_NO_REASON,) if any(told) else ()) if told else UNKNOWN


def _is_known(value: object) -> bool:
    return isinstance(value, int) and value not in _HIGHEST
