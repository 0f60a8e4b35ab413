"""Which memory values hold on which devices, in every framework."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.frameworks.answers import Holding
from gpu_magic.placement.collection import collection_paused
from gpu_magic.placement.walk import Node, Walker
from gpu_magic.selection.target import CPU, LogicalDevice

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from gpu_magic.placement.budget import Budget

__all__ = ["DeviceMemory", "gpu_bytes", "holdings_of", "is_same_device", "memory_by_device"]


class DeviceMemory(NamedTuple):
    """The memory that values hold on one device.

    Parameters
    ----------
    nbytes
        Its size in bytes; shared memory counts once.
    arrays
        The number of arrays. Those that share their memory (views, tied weights) count as one.

    """

    nbytes: int
    arrays: int


def memory_by_device(
    values: Iterable[object], budget: Budget | None = None
) -> dict[LogicalDevice | str, DeviceMemory]:
    """Return the memory that values hold, by device: see `gpu_magic.devices_of`."""
    found: dict[LogicalDevice | str, DeviceMemory] = {}
    for holding in holdings_of(values, budget).values():
        nbytes, arrays = found.get(holding.device, (0, 0))
        found[holding.device] = DeviceMemory(nbytes + holding.nbytes, arrays + 1)
    return found


def gpu_bytes(holdings: Mapping[Hashable, Holding]) -> int:
    """Return how many bytes of some memory are on GPUs."""
    return sum(
        holding.nbytes
        for holding in holdings.values()
        if isinstance(holding.device, LogicalDevice) and holding.device.kind == "gpu"
    )


def is_same_device(device: LogicalDevice | str, other: LogicalDevice) -> bool:
    """Return whether a device is another one, which need not say what type of GPU it is."""
    if not isinstance(device, LogicalDevice) or (device.kind, device.index) != (other.kind, other.index):
        return False
    return device.type == other.type or not device.type or not other.type


def holdings_of(values: Iterable[object], budget: Budget | None = None) -> dict[Hashable, Holding]:
    """Return the memory that values hold, by the key that is the same for those that share it.

    Parameters
    ----------
    values
        The values.
    budget
        How many objects may be looked at. None: all that the values lead to.

    """
    found: dict[Hashable, Holding] = {}
    with collection_paused():
        for obj, node, _ in Walker(budget=budget).walk(values):
            try:
                holdings = _holdings(obj, node)
            except Exception:  # noqa: BLE001, S112 - arrays of all kinds are asked; one must not hide the others
                continue
            for holding in holdings:
                found.setdefault(holding.key, holding)
    return found


def _holdings(obj: Any, node: Node) -> Sequence[Holding]:
    """Return the memory that is an object's own, and not its components'."""
    if node.kind == "array" and node.framework is not None:
        return node.framework.holdings(obj)
    return [_numpy_holding(obj)] if node.kind == "numpy" else ()


def _numpy_holding(array: Any) -> Holding:
    """Return what a NumPy array occupies.

    The key is the address at which that begins, which PyTorch and JAX share where they share the memory.
    """
    numpy: Any = sys.modules["numpy"]
    while isinstance(array.base, numpy.ndarray):
        array = array.base
    low, high = numpy.lib.array_utils.byte_bounds(array)  # a view can repeat itself
    return Holding(CPU, high - low, ("address", low))
