"""A device mode of PyTorch in which DataLoaders work. This module imports PyTorch, so import it late.

`with torch.device(d)` breaks DataLoaders (PyTorch 2.13, torch/utils/_device.py). It runs `randperm` and other
functions on `d` even if their generator is the CPU's. They raise an error, so no DataLoader can shuffle. With
`pin_memory`, a DataLoader pins tensors that are already on `d`, and raises an error. Its forked workers
inherit the mode, but cannot use CUDA.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch.compiler import is_compiling
from torch.overrides import TorchFunctionMode

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks.private import required
from gpu_magic.frameworks.target import Block, blocks_here
from gpu_magic.frameworks.torch_objects import device_switch

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["DeviceMode", "RefusingMode"]

_module: Any = import_module("torch.utils._device")
_constructors = required("torch.utils._device:_device_constructors")
_Context: Any = required("torch.utils._device:DeviceContext")
_count = required("torch._C:_len_torch_function_stack")
_pop, _push = (required(f"torch._C:_{name}_torch_function_stack") for name in ("pop", "push_on"))
_global = required("torch:_GLOBAL_DEVICE_CONTEXT")  # set by torch.set_default_device, per thread
_MAIN = threading.main_thread().ident
_normal, _pin_memory = torch.normal, torch.Tensor.pin_memory


class _Entered(threading.local):
    """The device modes of this thread."""

    def __init__(self) -> None:
        self.modes: list[DeviceMode] = []


_entered = _Entered()


class DeviceMode(_Context):  # type: ignore[misc] # the type checker does not see PyTorch
    """`torch.device` as a context manager that also supports generators of another device and `pin_memory`.

    It is a subclass of PyTorch's `DeviceContext`, because torch.compile can trace that class. At its end, it
    restores the previous device, even if the block has set a default device or left a context open. Code of
    other asyncio tasks, which run in the same thread meanwhile, keeps its own default and current device.

    Attributes
    ----------
    current_before
        The current device before the block. None if the block does not change it.

    """

    current_before: Any = None

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        self._block = blocks_here.get()[-1:]

    def __enter__(self) -> None:
        default, current = getattr(_global, "device_context", None), getattr(_module, "CURRENT_DEVICE", None)
        before = _take_modes()
        self._before = before, default, current
        _entered.modes.append(self)
        _push(self)
        if before:
            _put_modes([one for one in before if not isinstance(one, _Context)])
        # All threads share CURRENT_DEVICE, so only the main thread sets it. torch.compile reads it as the
        # default device when it decides whether to recompile. The modes themselves are per thread.
        if threading.get_ident() == _MAIN:
            _module.CURRENT_DEVICE = self.device

    def __exit__(self, *exc_info: object) -> None:
        if self in _entered.modes:  # else a generator ends it in another thread
            _entered.modes.remove(self)
        before, _global.device_context, current = self._before
        now = _take_modes()
        if before or now != [self]:  # keep the user's own modes that the block leaves open
            new = [one for one in now if one not in before and not isinstance(one, _Context)]
            _put_modes([*new, *(one for one in before if one in now or isinstance(one, _Context))])
        if threading.get_ident() == _MAIN:
            _module.CURRENT_DEVICE = current

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # PyTorch calls this for every function. torch.compile traces it, and knows `_device_constructors`.
        kwargs = kwargs or {}
        if not is_compiling() and _is_of_another_task(self._block):
            return self._in_another_task(func, types, args, kwargs)
        if kwargs and kwargs.get("generator") is not None:
            return self._drawn(func, args, kwargs)
        if func in _constructors():
            if kwargs.get("device") is None:
                first = args[0] if args else None  # `torch.tensor(0.0)` or `torch.zeros(())`
                is_number = type(first) is float or (type(first) is tuple and not first)
                is_count = is_number and not is_compiling() and _is_of_optimizer(sys._getframe(1))  # noqa: SLF001
                kwargs["device"] = "cpu" if is_count else self.device
        elif func is _normal:
            if _makes_on_default(func, args, kwargs):
                kwargs["device"] = self.device
        elif func is _pin_memory and args[0].device.type != "cpu":
            return args[0]  # a DataLoader pins a batch that was created on the device
        return func(*args, **kwargs)

    def _in_another_task(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function on the default and the current device of the task that calls it."""
        outer: Any = self
        current, blocks = None, set[Block]()
        while isinstance(outer, DeviceMode) and _is_of_another_task(outer._block):  # noqa: SLF001
            current = outer.current_before or current
            blocks.update(outer._block)  # noqa: SLF001
            # The mode that this one has taken off, the innermost first, can be that of the other task.
            outer = next((one for one in outer._before[0] if isinstance(one, _Context)), None)  # noqa: SLF001
        if isinstance(outer, DeviceMode) and outer.current_before is not None:
            current = outer.device
        with nullcontext() if current is None else device_switch(current):
            made = outer.__torch_function__(func, types, args, kwargs) if outer else func(*args, **kwargs)
        found = (one.device for one in (made, *args) if isinstance(one, torch.Tensor))
        numbers = {device.index for device in found if device.index is not None}
        for block in blocks:
            block.used_by_others |= numbers
        return made

    def _drawn(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Draw on the generator's device. Copy the result to this device, or into the tensor to fill.

        PyTorch refuses a generator of another type of device than the tensor's. Notebooks use a CPU
        generator, `torch.Generator().manual_seed(0)`, to get the same numbers everywhere.
        """
        if kwargs.get("device") is not None or kwargs.get("out") is not None:
            return func(*args, **kwargs)  # the call names the device, and PyTorch checks it
        source = kwargs["generator"].device
        given = next((one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)), None)
        target = self.device if given is None else given.device
        if given is None:  # the function creates a tensor
            kwargs["device"] = target if source.type == target.type else source
        if source.type == target.type:
            return func(*args, **kwargs)
        is_leaf = bool(kwargs.pop("requires_grad", False))

        def there(value: Any) -> Any:
            return value.to(source) if isinstance(value, torch.Tensor) else value

        drawn = func(*map(there, args), **{name: there(value) for name, value in kwargs.items()})
        if given is None or not func.__name__.endswith("_"):
            drawn = drawn.to(target)
            return drawn.requires_grad_() if is_leaf else drawn
        with torch.no_grad():  # as in-place random functions do
            return given.copy_(drawn)


class RefusingMode(TorchFunctionMode):  # type: ignore[misc]
    """Raises an error when a tensor is created on the default device, which does not exist."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self._why, self._block = why, blocks_here.get()[-1:]

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if _makes_on_default(func, args, kwargs) and not _is_of_another_task(self._block):
            raise PlacementError(self._why)
        return func(*args, **kwargs)


def _is_of_another_task(block: tuple[Block, ...]) -> bool:
    """Return whether the code that runs is in an asyncio task outside of a mode's block."""
    return bool(block) and block[0] not in blocks_here.get()


def _is_of_optimizer(caller: FrameType) -> bool:
    """Return whether the caller is an optimizer of PyTorch. It creates its step count without a device.

    The count belongs on the CPU, because each step reads it. Reading it from a GPU would wait for all the
    work of the GPU (PyTorch 2.13, torch/optim/adam.py, the only optimizer that names the CPU).
    """
    module = str(caller.f_globals.get("__name__", ""))
    return module.startswith("torch.optim.") and module != "torch.optim.swa_utils"  # which creates a buffer


def _makes_on_default(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a call makes a tensor on the default device."""
    if kwargs.get("device") is not None:
        return False
    if func is _normal:  # with a tensor argument, it accepts no device
        return not any(isinstance(value, torch.Tensor) for value in (*args, *kwargs.values()))
    return func in _constructors()


def _take_modes() -> list[Any]:
    """Remove this thread's modes, and return them, the innermost first.

    Several modes can be device contexts: the outermost one of `torch.set_default_device`, and one of each
    `with torch.device(...)`.
    """
    return [_pop() for _ in range(_count())]


def _put_modes(modes: list[Any]) -> None:
    for mode in reversed(modes):
        _push(mode)


def _use_cpu_in_child() -> None:
    """Make a forked child, such as a DataLoader's worker, use the CPU, because it cannot use CUDA.

    Python cannot unregister this function. Outside of blocks, the function does nothing.
    """
    for mode in _entered.modes:
        mode.device = torch.device("cpu")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_use_cpu_in_child)
