"""Makes a device PyTorch's current one, which `"cuda"` without an index means."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from gpu_magic.frameworks.nested_scopes import NestedScopes

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

__all__ = ["CurrentDevice", "device_switch"]

_scopes = NestedScopes()


class CurrentDevice:
    """Makes a device the current one, and the default one of a mode, for as long as a block runs.

    Parameters
    ----------
    device
        A `torch.device` with an index.
    mode
        What makes it the default.

    """

    def __init__(self, device: Any, mode: AbstractContextManager[Any]) -> None:
        self._switch, self._mode = device_switch(device), mode

    @property
    def before(self) -> int:
        """The index of the device that was current before; PyTorch's own switch keeps it."""
        return int(self._switch.prev_idx)

    @before.setter
    def before(self, index: int) -> None:
        self._switch.prev_idx = index

    def __enter__(self) -> None:
        self._switch.__enter__()
        try:
            self._mode.__enter__()
        except BaseException:
            self._switch.__exit__(None, None, None)
            raise
        _scopes.enter(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._mode.__exit__(kind, error, trace)
        finally:
            if _scopes.leave(self):
                self._switch.__exit__(kind, error, trace)


def device_switch(device: Any) -> Any:
    """Return a context that makes a device current, and at its exit the one that was current before."""
    torch: Any = sys.modules["torch"]
    switch = torch.cuda.device if device.type == "cuda" else torch.accelerator.device_index
    return switch(device.index)
