"""PyTorch's device mode, extended for generators and forks. It imports PyTorch: import it only after that.

`with torch.device(d)` alone has traps (PyTorch 2.13, torch/utils/_device.py): `randperm` and the others that
take a generator are sent to `d` also when the generator is the CPU's, and then raise, so no DataLoader can
shuffle; one with `pin_memory` pins what was made on `d`, and raises; and the forked workers of a DataLoader
inherit the mode, and can't use CUDA.

It is built on private names of PyTorch. Importing it raises where one is missing; blocks then have
`with torch.device(d)` itself. `prev_mode` is not in PyTorch 2.8 and 2.9; the others are in all since 2.8.
"""

from __future__ import annotations

import os
import sys
import threading
from itertools import pairwise
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch import _C
from torch.compiler import is_compiling
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
    _pop_mode,
    _push_mode,
)
from torch.utils import _device
from torch.utils._device import DeviceContext, _device_constructors

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks.pytorch.sampling import SAMPLERS, sample

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["DeviceMode", "RefusingMode"]

_stack_size, _at = _C._len_torch_function_stack, _C._get_function_stack_at  # noqa: SLF001
DeviceContext("cpu").prev_mode, _device.CURRENT_DEVICE  # they are there, or this raises
_global = torch._GLOBAL_DEVICE_CONTEXT  # noqa: SLF001 - what torch.set_default_device sets, per thread
# A mode of another thread is kept out of `CURRENT_DEVICE`, the one global variable that modes have: modes
# are each thread's own. The variable is what torch.compile takes for the default device when it decides
# whether to compile again; in which mode it compiles, it finds out by itself.
_MAIN = threading.main_thread().ident
_normal = torch.normal
_pin_memory = torch.Tensor.pin_memory


class DeviceMode(DeviceContext):  # type: ignore[misc] # the type checker does not see PyTorch
    """`torch.device` as a context, except that generators of another device and `pin_memory` work as well.

    It is a subclass of PyTorch's, because torch.compile knows that one and how to trace through it.
    """

    def __enter__(self) -> Any:
        self._default_before = _global.__dict__.get("device_context")
        before = _device.CURRENT_DEVICE
        DeviceContext.__enter__(self)
        if get_ident() != _MAIN:
            _device.CURRENT_DEVICE = before

    def __exit__(self, *exc_info: object) -> None:
        is_default_unchanged = _global.__dict__.get("device_context") is self._default_before
        before = _device.CURRENT_DEVICE
        if is_default_unchanged and _stack_size() == 1 and _at(0) is self:
            DeviceContext.__exit__(self, *exc_info)
        else:
            self._exit_out_of_order()
        if get_ident() != _MAIN:
            _device.CURRENT_DEVICE = before

    def _exit_out_of_order(self) -> None:
        """Exit after `torch.set_default_device` in the block, or while other contexts are still entered.

        PyTorch keeps one device mode active, at the bottom of the stack of modes. Each device mode knows the
        one that it replaced (`prev_mode`), so they form a chain, the active one first. This mode is taken out
        of the chain, and with it what `set_default_device` has added in the block. What others have entered
        and not left stays, and ends at what was active before the block.
        """
        ended = [self]
        default = _global.__dict__.get("device_context")
        if default is not self._default_before:
            ended.append(default)

        others = _pop_all_modes()
        active = others.pop(0) if others and isinstance(others[0], DeviceContext) else None
        chain = dict.fromkeys([*_chain_of(active), *_chain_of(self.prev_mode)])
        remaining = [mode for mode in chain if mode not in ended]
        for mode, replaced in pairwise([*remaining, None]):
            mode.prev_mode = replaced

        for mode in [*remaining[:1], *others]:
            _push_mode(mode)
        _device.CURRENT_DEVICE = remaining[0].device if remaining else None
        _global.device_context = self._default_before

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # Every call of PyTorch's comes by here. torch.compile traces it, and knows `_device_constructors`.
        kwargs = kwargs or {}
        if kwargs and kwargs.get("generator") is not None and func in SAMPLERS:
            return sample(func, args, kwargs, self.device)
        if func in _device_constructors():
            if kwargs.get("device") is None:
                first = args[0] if args else None  # `torch.tensor(0.0)` and `torch.zeros(())` make a number
                is_number = type(first) is float or (type(first) is tuple and not first)
                is_count = is_number and not is_compiling() and _is_of_optimizer(sys._getframe(1))  # noqa: SLF001
                kwargs["device"] = "cpu" if is_count else self.device
        elif func is _normal:
            if _makes_on_default(func, args, kwargs):
                kwargs["device"] = self.device
        elif func is _pin_memory and args[0].device.type != "cpu":
            return args[0]  # a batch that a DataLoader was to pin, and that was made on the device at once
        return func(*args, **kwargs)


class RefusingMode(TorchFunctionMode):  # type: ignore[misc]
    """Raises when a tensor is made on the default device, which is to be one that is not there.

    Parameters
    ----------
    why
        The message of the error.

    """

    def __init__(self, why: str) -> None:
        super().__init__()
        self._why = why

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if _makes_on_default(func, args, kwargs):
            raise PlacementError(self._why)
        return func(*args, **kwargs)


def _pop_all_modes() -> list[Any]:
    """Empty this thread's stack of modes; return them, the bottom first."""
    modes = [_pop_mode() for _ in range(_stack_size())]
    return modes[::-1]


def _chain_of(mode: Any) -> list[Any]:
    """Return a device mode, the one that it replaced, and so on."""
    chain: list[Any] = []
    while mode is not None and mode not in chain:  # a mode that is entered twice makes a circle
        chain.append(mode)
        mode = mode.prev_mode
    return chain


def _is_of_optimizer(caller: FrameType) -> bool:
    """Return whether an optimizer of PyTorch's makes a tensor without saying where: a count of its steps.

    It is meant to be on the CPU, as each step reads it, which on a GPU waits for all that the GPU has to do
    (PyTorch 2.13, torch/optim/adam.py, which is the only one to name the CPU).
    """
    module = str(caller.f_globals.get("__name__", ""))
    return module.startswith("torch.optim.") and module != "torch.optim.swa_utils"  # that one has a buffer


def _makes_on_default(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a call makes a tensor on the default device."""
    if kwargs.get("device") is not None:
        return False
    if func is _normal:  # its other forms take a tensor, and no device
        return not any(isinstance(value, torch.Tensor) for value in (*args, *kwargs.values()))
    return func in _device_constructors()


def _use_cpu_in_child() -> None:
    """Let a forked child, such as a DataLoader's worker, make its tensors on the CPU: it can't use CUDA."""
    for mode in _get_current_function_mode_stack():
        if isinstance(mode, DeviceMode):
            mode.device = torch.device("cpu")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_use_cpu_in_child)
