"""`tf.distribute.MirroredStrategy` over exactly the devices that are named."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from gpu_magic.frameworks.tensorflow.devices import name_of

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from gpu_magic.selection.target import LogicalDevice

__all__ = ["mirrored"]

# A model can be used only with the strategy that it was made with, also in another cell.
_strategies: dict[tuple[str, ...], Any] = {}


def mirrored(devices: tuple[LogicalDevice, ...]) -> AbstractContextManager[Any]:
    """Return the scope of a strategy over these devices, always the same strategy for the same devices."""
    names = tuple(map(name_of, devices))
    if names not in _strategies:
        _strategies[names] = sys.modules["tensorflow"].distribute.MirroredStrategy(list(names))
    return _strategies[names].scope()  # type: ignore[no-any-return]
