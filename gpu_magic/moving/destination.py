"""The device that variables move to, and the framework that NumPy's arrays are converted for."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks import get, imported
from gpu_magic.process.physical import LazySnapshot, innermost, locate
from gpu_magic.selection.target import LogicalDevice, parse_targets

if TYPE_CHECKING:
    from gpu_magic.frameworks.base import Framework

__all__ = ["UnusableDeviceError", "check_numpy", "read_destination"]

# The frameworks that NumPy's arrays can be converted for.
_FROM_NUMPY = ("torch", "jax", "cupy")


class UnusableDeviceError(PlacementError):
    """The device that was asked for is not there, or a framework can't use it."""


def read_destination(text: str | None, machine: LazySnapshot | None = None) -> LogicalDevice:
    """Return the device that a text names.

    Parameters
    ----------
    text
        As after `--device`; None is the GPU of the `on_gpu` block around, or else `cuda:0`.
    machine
        The machine, where it was read for the same request; it is read for a physical GPU.

    Raises
    ------
    PlacementError
        The text names no device, or several.
    UnusableDeviceError
        It names a GPU that this process can't see.

    """
    if text is None:
        around = innermost()
        return around if around is not None and around.kind == "gpu" else LogicalDevice("gpu", 0)
    first, *others = parse_targets(text)
    if others:
        raise PlacementError(f"Variables go to one device, and {text} names {len(others) + 1}.")
    try:
        return locate(first, machine or LazySnapshot())
    except PlacementError as error:
        raise UnusableDeviceError(str(error)) from None


def check_numpy(module: str) -> None:
    """Check that NumPy's arrays can be converted into those of a framework.

    Raises
    ------
    PlacementError
        The framework has no such arrays, or is not imported.

    """
    if module not in _FROM_NUMPY:
        raise PlacementError(
            f"NumPy's arrays can become those of {' or '.join(_FROM_NUMPY)}, and not of {module}."
        )
    framework = cast("Framework", get(module))
    if framework not in imported():
        raise PlacementError(
            f"NumPy's arrays can't become {framework.name}'s before it is imported: import {module}."
        )
