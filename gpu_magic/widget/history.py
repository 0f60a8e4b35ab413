"""Utilization of each device over the last minutes."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_magic.widget.protocol import Figures

__all__ = ["History"]

_SAMPLES = 180  # a reading each second: three minutes


class History:
    """Keeps the latest samples of each device, the newest last. Has no lock: `PanelState` guards it."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[int | None]] = {}
        self._added_at = time.monotonic()

    def add(self, figures: Mapping[str, Figures]) -> None:
        """Add a reading; seconds in which the machine was not read become None, as if unknown."""
        missed = min(_SAMPLES, round(time.monotonic() - self._added_at) - 1)
        self._added_at = time.monotonic()
        for key in self._samples.keys() - figures.keys():
            del self._samples[key]
        for key, device in figures.items():
            samples = self._samples.setdefault(key, deque(maxlen=_SAMPLES))
            samples.extend([None] * (missed if samples else 0))
            samples.append(device.utilization if isinstance(device.utilization, int) else None)

    def samples(self) -> dict[str, list[int | None]]:
        """Return utilization in percent by device, the newest last; None: not known."""
        return {key: list(samples) for key, samples in self._samples.items()}
