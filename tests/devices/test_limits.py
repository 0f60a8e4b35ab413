"""What holds a GPU back, as the driver says: power, heat, and nothing that is not a slowdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml
import pytest

from gpu_magic.devices.limits import UNKNOWN_LIMITS
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.testing import simulate

if TYPE_CHECKING:
    from gpu_magic.devices.nvml import Nvml

EVENT = "nvmlDeviceGetCurrentClocksEventReasons"
THROTTLE = "nvmlDeviceGetCurrentClocksThrottleReasons"


@pytest.mark.parametrize(
    ("reasons", "slowdowns"),
    [
        (pynvml.nvmlClocksEventReasonNone, ()),
        (pynvml.nvmlClocksEventReasonGpuIdle, ()),
        (pynvml.nvmlClocksEventReasonApplicationsClocksSetting, ()),
        (pynvml.nvmlClocksEventReasonDisplayClockSetting, ()),
        (pynvml.nvmlClocksEventReasonSwPowerCap, ("power limit",)),
        (pynvml.nvmlClocksEventReasonSwThermalSlowdown, ("heat",)),
        (pynvml.nvmlClocksEventReasonHwThermalSlowdown | pynvml.nvmlClocksEventReasonHwSlowdown, ("heat",)),
        (
            pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown | pynvml.nvmlClocksEventReasonHwSlowdown,
            ("power supply",),
        ),
        (pynvml.nvmlClocksEventReasonHwSlowdown, ("hardware",)),
        (pynvml.nvmlClocksEventReasonSyncBoost, ("another GPU of its sync boost group",)),
        (
            pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonSwThermalSlowdown,
            ("power limit", "heat"),
        ),
    ],
)
def test_reasons_are_told_in_words(nvml: Nvml, reasons: int, slowdowns: tuple[str, ...]) -> None:
    with simulate("1xA100-80GB") as machine:
        machine.gpus[0].slowdowns = reasons
        nvml.inventory()
        limits = nvml.limits(0)
    assert limits.slowdowns == slowdowns
    assert limits.power == 400


def test_an_older_driver_is_asked_by_the_older_name(nvml: Nvml) -> None:
    with simulate("1xA100-80GB") as machine:
        machine.missing.add(EVENT)
        machine.gpus[0].slowdowns = pynvml.nvmlClocksEventReasonSwPowerCap
        nvml.inventory()
        assert nvml.limits(0).slowdowns == ("power limit",)


def test_what_the_driver_does_not_give_is_unknown(nvml: Nvml) -> None:
    with simulate("2xA100-80GB") as machine:
        machine.missing.update((EVENT, THROTTLE))
        machine.gpus[0].fail("nvmlDeviceGetEnforcedPowerLimit", pynvml.NVML_ERROR_NOT_SUPPORTED)
        nvml.inventory()
        assert nvml.limits(0) == UNKNOWN_LIMITS
        assert nvml.limits(1).power == 400
        assert nvml.limits(1).slowdowns is UNKNOWN


def test_a_gpu_that_is_lost_or_not_there_has_no_limits(nvml: Nvml) -> None:
    with simulate("1xA100-80GB") as machine:
        nvml.inventory()
        machine.gpus[0].lose()
        assert nvml.limits(0) == UNKNOWN_LIMITS
        assert nvml.limits(7) == UNKNOWN_LIMITS


def test_limits_are_read_for_no_snapshot(nvml: Nvml) -> None:
    with simulate("1xA100-80GB"):
        nvml.inventory()
        calls = pynvml.nvmlLib.calls
    assert not {EVENT, THROTTLE, "nvmlDeviceGetEnforcedPowerLimit"} & calls.keys()
