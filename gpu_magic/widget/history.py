"""Utilization and memory of each device over the last minutes, and the clock that its readings have."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_magic.widget.page_state import Figures

__all__ = ["History"]

_SAMPLES = 180  # one each second: three minutes

# A second's utilization in percent, and memory in use in thousandths; None: not known. The garbage collector
# does not follow plain tuples of numbers, as it does named ones.
_Sample = tuple[int | None, int | None]
_NOTHING: _Sample = (None, None)


class History:
    """Keeps the latest samples of each device, the newest last. Has no lock: `PanelState` guards it.

    `second` is the time of the latest reading, as a whole number. In each second since `unbroken` the machine
    has been read.
    """

    def __init__(self) -> None:
        self._samples: dict[str, deque[_Sample]] = {}
        self._second_began: float | None = None
        self.second = 0
        self.unbroken = 0

    def add(self, figures: Mapping[str, Figures]) -> None:
        """Add a reading; seconds in which the machine was not read become None, as if unknown.

        A second reading in one second takes the place of the first.
        """
        passed = self._pass_seconds()
        if passed > 1:
            self.unbroken = self.second
        for key in self._samples.keys() - figures.keys():
            del self._samples[key]
        for key, device in figures.items():
            samples = self._samples.setdefault(key, deque(maxlen=_SAMPLES))
            if samples and not passed:
                samples.pop()
            samples.extend([_NOTHING] * min(_SAMPLES, passed - 1 if samples else 0))
            samples.append(_sample(device))

    def utilization(self) -> dict[str, list[int | None]]:
        """Return utilization in percent by device, the newest last; None: not known."""
        return {key: [utilization for utilization, _ in samples] for key, samples in self._samples.items()}

    def memory(self, key: str) -> list[int | None]:
        """Return the memory in use on a device in thousandths, the newest last; None: not known."""
        return [memory for _, memory in self._samples.get(key, ())]

    def _pass_seconds(self) -> int:
        """Return how many seconds have passed since the reading before; one may come half a second off."""
        now = time.monotonic()
        if self._second_began is None:
            self._second_began = now
        passed = round(now - self._second_began)
        self._second_began += passed
        self.second += passed
        return passed


def _sample(device: Figures) -> _Sample:
    utilization = device.utilization if isinstance(device.utilization, int) else None
    return utilization, None if device.used is None else device.used_share
