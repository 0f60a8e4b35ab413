"""Ranks devices for `auto`: the free ones first, then those with the most free memory."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.text import GIB

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_magic.devices.model import Device

__all__ = ["Standing", "is_comparable", "rank", "standing"]


class Standing(IntEnum):
    """How good a device is to pick, the best first."""

    FREE = 0
    UNSURE = 1  # no figure shows use, and one is missing
    BUSY = 2
    MEMORY_UNKNOWN = 3


def standing(device: Device) -> Standing:
    """Return how good a device is to pick, whoever has claimed it."""
    if device.status.memory_used is UNKNOWN:
        return Standing.MEMORY_UNKNOWN
    busy = device.is_busy
    return Standing.UNSURE if busy is UNKNOWN else Standing.BUSY if busy else Standing.FREE


def rank(devices: Iterable[Device], preferred: frozenset[str] = frozenset()) -> list[Device]:
    """Return devices, the best to pick first.

    In this order they are told apart: by their standing; those that are preferred; the most free memory, in
    whole GiB, as an idle GPU's differs a little; the fewest processes, where memory is not known; the least
    utilization. Among equals it is nvidia-smi's order. One of which no figure is known comes last.

    Parameters
    ----------
    devices
        Those to rank, in nvidia-smi's order.
    preferred
        UUIDs of those that this process has claimed: asking again is to give the same.

    """

    def key(device: Device) -> tuple[float, ...]:
        status = device.status
        free = status.memory_free
        processes = UNKNOWN if status.users is UNKNOWN else len(status.users)
        return (
            standing(device),
            device.uuid not in preferred,
            math.inf if free is UNKNOWN else -(free // GIB),
            _last(processes) if status.memory_used is UNKNOWN else 0,
            _last(status.utilization),
        )

    return sorted(devices, key=key)


def _last(figure: float | Unknown) -> float:
    return math.inf if figure is UNKNOWN else figure


def is_comparable(device: Device) -> bool:
    """Return whether anything is known by which a device can be told from others."""
    status = device.status
    return any(figure is not UNKNOWN for figure in (status.memory_used, status.processes, status.utilization))
