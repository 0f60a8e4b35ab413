"""Where to, and what NumPy's arrays are to become: read, and refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks import get, imported
from gpu_magic.placement.physical import locate
from gpu_magic.placement.scope import innermost
from gpu_magic.selection.target import LogicalDevice, parse_targets

if TYPE_CHECKING:
    from gpu_magic.frameworks.base import Framework

__all__ = ["check_numpy", "read_destination"]

_FROM_NUMPY = ("torch", "jax", "cupy")


def read_destination(text: str | None) -> LogicalDevice:
    """Return the one device that is named; for None the GPU of the block around, or else cuda:0.

    Raises
    ------
    PlacementError
        For none, for several, or for a GPU that this process can't see.

    """
    if text is None:
        around = innermost()
        return around if around is not None and around.kind == "gpu" else LogicalDevice("gpu", 0)
    first, *others = parse_targets(text)
    if others:
        raise PlacementError(f"Variables go to one device, and {text} names {len(others) + 1}.")
    return locate(first)


def check_numpy(module: str) -> None:
    """Refuse to make NumPy's arrays those of a framework that there is not.

    Raises
    ------
    PlacementError
        For one that has no such arrays, or is not imported.

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
