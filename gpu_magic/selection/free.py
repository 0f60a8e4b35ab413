"""Whether other processes use or have claimed the devices that are named: `%gpus 1,3 --only-free`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.errors import NotFreeError
from gpu_magic.selection.reasons import left_out, used_by
from gpu_magic.spelling import option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.devices.model import Device

__all__ = ["check_free", "held_by"]


def check_free(devices: Sequence[Device]) -> None:
    """Check that nobody but this process uses or has claimed any of some devices.

    Raises
    ------
    NotFreeError
        Somebody has, or a figure that would show it is not known.

    """
    others = {device: why for device in devices if (why := _why_not_free(device))}
    if others:
        is_one, holders = len(devices) == 1, left_out(others)
        it = "it" if is_one else "them"
        line = f"Not free: {holders}. {option('wait', '30m')} waits for {it}."
        raise NotFreeError(line, next(iter(others.values())) if is_one else holders)


def held_by(device: Device) -> str:
    """Return who else uses or has claimed a device, in a few words; empty where nobody is known to."""
    if device.status.claims:
        return ", ".join(map(str, device.status.claims))
    return (
        used_by(device, is_ours_named=False) if device.is_busy is True and not device.status.is_ours else ""
    )


def _why_not_free(device: Device) -> str:
    if (holder := held_by(device)) or device.is_busy is False or device.status.is_ours:
        return holder
    return "not known to be free"
