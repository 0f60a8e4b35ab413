"""The energy counter: whether it changes, and agrees with the power draw."""

from __future__ import annotations

import threading
import time
from typing import Any

from tests.gpu.claim import NotTriedError, Seen, claim, measurement
from tests.gpu.programs.common import alone, number_of

WHERE = "devices/nvml.py"
_SECONDS = 3.0
_SETTLED = 1.5  # of load, before power is read


def _device() -> Any:
    import pynvml

    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(number_of(alone()))
    for ask in (pynvml.nvmlDeviceGetTotalEnergyConsumption, pynvml.nvmlDeviceGetPowerUsage):
        try:
            ask(device)
        except pynvml.NVMLError as error:
            raise NotTriedError(f"{ask.__name__[4:]} answers: {error}") from None
    return device


def _measured(device: Any, seconds: float) -> tuple[float, float, float]:
    """Return the joules by the counter, the joules by power and time, and the mean power in watts."""
    import pynvml

    before, began = pynvml.nvmlDeviceGetTotalEnergyConsumption(device), time.monotonic()
    drawn = []
    while time.monotonic() < began + seconds:
        drawn.append(pynvml.nvmlDeviceGetPowerUsage(device) / 1000)
        time.sleep(0.05)
    joules = (pynvml.nvmlDeviceGetTotalEnergyConsumption(device) - before) / 1000
    power = sum(drawn) / len(drawn)
    return joules, power * (time.monotonic() - began), power


def _judged(joules: float, expected: float, power: float) -> Seen:
    ratio = joules / expected
    what = f"{joules:.0f} J counted, {expected:.0f} J by power and time"
    return Seen(0.75 < ratio < 1.25, what, {"ratio": ratio, "W": power})


@claim(
    "The energy counter rises by the power draw multiplied by the time, within 25 %.",
    WHERE,
    "a driver",
    "whole GPUs",
)
def idle() -> Seen:
    return _judged(*_measured(_device(), _SECONDS))


@claim(
    "Under load, the energy counter also rises by the power draw multiplied by the time, within 25 %.",
    WHERE,
    "a driver",
    "whole GPUs",
    "PyTorch for CUDA",
)
def under_load() -> Seen:
    from tests.gpu.programs.load import busy

    device = _device()
    busy(0.5)  # CUDA's start
    worker = threading.Thread(target=busy, args=(_SETTLED + _SECONDS + 1,))
    worker.start()
    time.sleep(_SETTLED)
    seen = _judged(*_measured(device, _SECONDS))
    worker.join()
    return seen


@measurement(
    "The time that the driver needs to return the energy counter, and how often the counter changes. gpu_magic "
    "reads the counter before and after a cell.",
    WHERE,
    "a driver",
    "whole GPUs",
)
def quick() -> Seen:
    import pynvml

    device = _device()
    times, values = [], []
    end = time.monotonic() + 1
    while time.monotonic() < end:
        began = time.perf_counter()
        values.append(pynvml.nvmlDeviceGetTotalEnergyConsumption(device))
        times.append(time.perf_counter() - began)
    median = sorted(times)[len(times) // 2] * 1e3
    moved = len(set(values)) - 1
    return Seen(
        True,
        f"{median:.3f} ms; the counter changed {moved} times in a second",
        {"ms": median, "moved": moved},
    )


@claim(
    "The joules that `%%gpu_time` reports are the joules that the counter has counted in the same time, within "
    "10 %.",
    "measure/recorder.py",
    "a driver",
    "whole GPUs",
    "PyTorch for CUDA",
)
def of_a_block() -> Seen:
    import pynvml

    import gpu_magic
    from gpu_magic.devices.model import UNKNOWN
    from tests.gpu.programs.load import busy

    device = _device()
    busy(0.5)
    before = pynvml.nvmlDeviceGetTotalEnergyConsumption(device)
    with gpu_magic.gpu_time() as measured:
        busy(_SECONDS)
    joules = (pynvml.nvmlDeviceGetTotalEnergyConsumption(device) - before) / 1000
    ours = measured.usage.gpus[0].energy
    if ours is UNKNOWN:
        return Seen(False, "the energy is reported as unknown")
    return Seen(abs(ours - joules) <= 0.1 * joules, f"{ours:.0f} J reported, {joules:.0f} J counted")
