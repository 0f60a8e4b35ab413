"""PyTorch's device mode, told of generators and of forks. To be imported only where PyTorch is already.

`with torch.device(d)` alone has two traps (PyTorch 2.13, torch/utils/_device.py): `randperm` and the others
that take a generator are sent to `d` also when the generator is of the CPU, and then raise, so no DataLoader
can shuffle; and the forked workers of a DataLoader inherit it, and can't use CUDA.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

import torch
from torch import _C
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
    _pop_mode,
    _push_mode,
)
from torch.utils import _device
from torch.utils._device import DeviceContext, _device_constructors

from gpu_magic.errors import PlacementError

__all__ = ["DeviceMode", "RefusingMode"]

_global = torch._GLOBAL_DEVICE_CONTEXT  # noqa: SLF001 - what torch.set_default_device sets, for each thread
_normal = torch.normal
# In-place sampling takes a generator's numbers on the tensor's own device.
_SAMPLERS = frozenset(
    getattr(torch.Tensor, name)
    for name in (
        "bernoulli_",
        "cauchy_",
        "exponential_",
        "geometric_",
        "log_normal_",
        "normal_",
        "random_",
        "uniform_",
    )
)


class DeviceMode(DeviceContext):  # type: ignore[misc] # PyTorch is not there for the type checker
    """`torch.device` as a context, except that a generator of another device is listened to.

    A subclass, because torch.compile knows this one and how to go on beneath it.
    """

    def __enter__(self) -> Any:
        self._default = _global.__dict__.get("device_context")
        DeviceContext.__enter__(self)

    def __exit__(self, *exc_info: object) -> None:
        is_as_set = _global.__dict__.get("device_context") is self._default
        is_alone = _C._len_torch_function_stack() == 1 and _C._get_function_stack_at(0) is self  # noqa: SLF001
        if is_as_set and is_alone:
            DeviceContext.__exit__(self, *exc_info)
        else:
            self._leave()

    def _leave(self) -> None:
        """Leave in disorder: `torch.set_default_device` within the block, or contexts that are still open.

        PyTorch keeps one device mode, at the bottom of the stack, and each knows the one that it replaced. We
        take ourselves out of that chain, and what `set_default_device` put there; what others have entered
        and not left stays theirs, and comes back to what was before us.
        """
        modes = [_pop_mode() for _ in range(_C._len_torch_function_stack())][::-1]  # noqa: SLF001
        chain: list[Any] = []
        mode = modes.pop(0) if modes and isinstance(modes[0], DeviceContext) else None
        while mode is not None and not any(one is mode for one in chain):
            chain.append(mode)
            mode = mode.prev_mode
        inside = _global.__dict__.get("device_context")
        gone = (self, inside) if inside is not self._default else (self,)
        chain = [one for one in chain if not any(one is other for other in gone)]
        if self.prev_mode is not None and not any(one is self.prev_mode for one in chain):
            chain.append(self.prev_mode)
        for one, before in pairwise(chain):
            one.prev_mode = before
        if chain and chain[-1] is not self.prev_mode:
            chain[-1].prev_mode = None
        for mode in [*chain[:1], *modes]:
            _push_mode(mode)
        _device.CURRENT_DEVICE = chain[0].device if chain else None
        _global.device_context = self._default

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _device_constructors():
            if kwargs.get("device") is None:
                generator = kwargs.get("generator")
                kwargs["device"] = self.device if generator is None else generator.device
        elif kwargs and func in _SAMPLERS:
            generator = kwargs.get("generator")
            if generator is not None and generator.device.type != args[0].device.type:
                with torch.no_grad():  # as these functions have it
                    there = torch.empty_like(args[0], device=generator.device)
                    return args[0].copy_(func(there, *args[1:], **kwargs))
        elif func is _normal and kwargs.get("device") is None and _has_no_tensor(args, kwargs):
            kwargs["device"] = self.device  # PyTorch's list leaves it out, as not every form takes a device
        return func(*args, **kwargs)


class RefusingMode(TorchFunctionMode):  # type: ignore[misc]
    """Lets nothing be made on the default device, as that is to be one that is not there.

    Parameters
    ----------
    why
        What the error says.

    """

    def __init__(self, why: str) -> None:
        super().__init__()
        self._why = why

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if (
            func in _device_constructors()
            and kwargs.get("device") is None
            and kwargs.get("generator") is None
        ):
            raise PlacementError(self._why)
        return func(*args, **kwargs)


def _has_no_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    given = (*args, *kwargs.values())  # mean, std, out, generator
    return not any(isinstance(one, torch.Tensor | torch.Generator) for one in given)


def _make_on_the_cpu() -> None:
    """Let a forked child, such as a DataLoader's worker, make its tensors on the CPU: it can't use CUDA."""
    for mode in _get_current_function_mode_stack():
        if isinstance(mode, DeviceMode):
            mode.device = torch.device("cpu")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_make_on_the_cpu)
