"""JAX's default device: of a block, and of all threads."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks.jax.devices import devices_like

if TYPE_CHECKING:
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["AbsentDevice", "DefaultDevice", "global_default"]


class DefaultDevice:
    """`jax.default_device`, except that it also takes back `jax.config.update` in the block.

    That sets the default device of all threads. So it is taken back by blocks of the main thread alone: in
    another thread, what has changed meanwhile is as likely to be the main thread's.
    """

    def __init__(self, device: Any) -> None:
        self._scope = sys.modules["jax"].default_device(device)

    def __enter__(self) -> None:
        self._before = global_default()
        self._scope.__enter__()

    def __exit__(self, *exc_info: object) -> None:
        self._scope.__exit__(*exc_info)
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and global_default() is not self._before:
            sys.modules["jax"].config.update("jax_default_device", self._before)


class AbsentDevice:
    """Takes the part of a device that JAX can't use: whatever computes on it raises.

    JAX accepts any object whose type has "Device" in its name (JAX 0.10, `_validate_default_device`), and
    reads its attributes when it makes the first array.
    """

    def __init__(self, device: LogicalDevice, why: str) -> None:
        self.__dict__["_why"] = f"This is to run on {device}, and JAX could not: {why}"
        self.__dict__["_device"] = device

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        devices_like(self._device)  # this starts JAX, which the code is using
        raise PlacementError(self._why)


def global_default() -> Any:
    """Return the default device of all threads (JAX 0.10, `State.get_global`); None where JAX has no such."""
    state = getattr(sys.modules.get("jax._src.config"), "default_device", None)
    ask = getattr(state, "get_global", None)
    return ask() if ask else None
