"""Moves to the CPU where the GPU that was asked for can't be used, if that was allowed, and says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gpu_magic.moving.destination import UnusableDeviceError, read_destination
from gpu_magic.selection.target import CPU

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_magic.process.physical import LazySnapshot
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["planned"]

_Plan = TypeVar("_Plan")


def planned(
    text: str | None, machine: LazySnapshot, make: Callable[[LogicalDevice], _Plan], *, or_cpu: bool
) -> _Plan:
    """Return what a function plans for the device that a text names.

    Parameters
    ----------
    text
        As after `--device`; None: see `read_destination`.
    machine
        The machine, where it was read for the same request.
    make
        Makes a plan for a device.
    or_cpu
        Plan for the CPU where the device can't be used, and print that in a line.

    Raises
    ------
    PlacementError
        The text names no device, or what is to be moved can't be.

    """
    try:
        return make(read_destination(text, machine))
    except UnusableDeviceError as error:
        if not or_cpu:
            raise
        print(f"Moving to the CPU: {error}")  # noqa: T201 - what `or_cpu` promises
    return make(CPU)
