"""PyTorch's device mode, so that DataLoaders work in it. It imports PyTorch: import it only after that.

`with torch.device(d)` alone has traps (PyTorch 2.13, torch/utils/_device.py): `randperm` and the others that
take a generator are sent to `d` also when the generator is the CPU's, and then raise, so no DataLoader can
shuffle; one with `pin_memory` pins what was made on `d`, and raises; and the forked workers of a DataLoader
inherit the mode, and can't use CUDA.
"""

from __future__ import annotations

import os
import sys
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch.compiler import is_compiling
from torch.overrides import TorchFunctionMode

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks.private import required

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["DeviceMode", "RefusingMode"]

_module: Any = import_module("torch.utils._device")
_constructors = required("torch.utils._device:_device_constructors")
_Context: Any = required("torch.utils._device:DeviceContext")
_count = required("torch._C:_len_torch_function_stack")
_pop, _push = (required(f"torch._C:_{name}_torch_function_stack") for name in ("pop", "push_on"))
_global = required("torch:_GLOBAL_DEVICE_CONTEXT")  # what torch.set_default_device sets, per thread
_MAIN = threading.main_thread().ident
_normal, _pin_memory = torch.normal, torch.Tensor.pin_memory


class DeviceMode(_Context):  # type: ignore[misc] # the type checker does not see PyTorch
    """`torch.device` as a context, except that generators of another device and `pin_memory` work as well.

    It is a subclass of PyTorch's, because torch.compile knows that one and how to trace through it. Its end
    restores the device that was set at its beginning, whatever was entered or set as the default meanwhile.
    """

    def __enter__(self) -> None:
        default, current = getattr(_global, "device_context", None), getattr(_module, "CURRENT_DEVICE", None)
        before = _take_modes()
        self._before = before, default, current
        _push(self)
        if before:
            _put_modes([one for one in before if not isinstance(one, _Context)])
        # CURRENT_DEVICE is one for all threads, and the main thread's: torch.compile takes it for the default
        # device when it decides whether to compile again. Modes themselves are each thread's own.
        if threading.get_ident() == _MAIN:
            _module.CURRENT_DEVICE = self.device

    def __exit__(self, *exc_info: object) -> None:
        before, _global.device_context, current = self._before
        now = _take_modes()
        if before or now != [self]:  # the user's own modes that the block leaves open stay
            new = [one for one in now if one not in before and not isinstance(one, _Context)]
            _put_modes([*new, *(one for one in before if one in now or isinstance(one, _Context))])
        if threading.get_ident() == _MAIN:
            _module.CURRENT_DEVICE = current

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # Every call of PyTorch's comes by here. torch.compile traces it, and knows `_device_constructors`.
        kwargs = kwargs or {}
        if kwargs and kwargs.get("generator") is not None:
            return self._drawn(func, args, kwargs)
        if func in _constructors():
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

    def _drawn(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Draw on the generator's device, and bring it to this one, or into the tensor that is filled.

        PyTorch refuses a generator that is not of the tensor's own kind of device. Notebooks have the CPU's,
        `torch.Generator().manual_seed(0)`, for the same numbers everywhere.
        """
        if kwargs.get("device") is not None or kwargs.get("out") is not None:
            return func(*args, **kwargs)  # where it has to be is said: PyTorch refuses what does not fit
        source = kwargs["generator"].device
        given = next((one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)), None)
        target = self.device if given is None else given.device
        if given is None:  # it makes a tensor
            is_leaf = bool(kwargs.pop("requires_grad", False))
            made = func(*args, **kwargs, device=target if source.type == target.type else source)
            return made.to(target).requires_grad_(is_leaf)
        if source.type == target.type:
            return func(*args, **kwargs)

        def there(value: Any) -> Any:
            return value.to(source) if isinstance(value, torch.Tensor) else value

        drawn = func(*map(there, args), **{name: there(value) for name, value in kwargs.items()})
        if not func.__name__.endswith("_"):
            return drawn.to(target)
        with torch.no_grad():  # as in these functions themselves
            return given.copy_(drawn)


class RefusingMode(TorchFunctionMode):  # type: ignore[misc]
    """Raises an error with a message when a tensor is made on the default device, which is not there."""

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
    return func in _constructors()


def _take_modes() -> list[Any]:
    """Take this thread's modes away, and return them: the last that was entered, and is asked first, first.

    Several can be device contexts: one of `torch.set_default_device`, below all others, and one of each
    `with torch.device(...)`.
    """
    return [_pop() for _ in range(_count())]


def _put_modes(modes: list[Any]) -> None:
    for mode in reversed(modes):
        _push(mode)


def _use_cpu_in_child() -> None:
    """Let a forked child, such as a DataLoader's worker, make its tensors on the CPU: it can't use CUDA."""
    modes = _take_modes()
    for mode in modes:
        if isinstance(mode, DeviceMode):
            mode.device = torch.device("cpu")
    _put_modes(modes)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_use_cpu_in_child)
