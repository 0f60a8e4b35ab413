"""PyTorch's device mode, told of generators and of forks. To be imported only where PyTorch is already.

`with torch.device(d)` alone has two traps (PyTorch 2.13, torch/utils/_device.py): `randperm` and the others
that take a generator are sent to `d` also when the generator is of the CPU, and then raise, so no DataLoader
can shuffle; and the forked workers of a DataLoader inherit it, and can't use CUDA.
"""

from __future__ import annotations

import os
from typing import Any

import torch  # noqa: TID251 - it is there already
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack  # noqa: TID251
from torch.utils._device import DeviceContext, _device_constructors  # noqa: TID251

from gpu_magic.errors import PlacementError

__all__ = ["DeviceMode", "RefusingMode"]

_global = torch._GLOBAL_DEVICE_CONTEXT  # noqa: SLF001 - what torch.set_default_device sets, for each thread
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
        # torch.set_default_device inside the block would stay behind in our place.
        self._default = getattr(_global, "device_context", None)
        DeviceContext.__enter__(self)

    def __exit__(self, *exc_info: object) -> None:
        DeviceContext.__exit__(self, *exc_info)
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


def _make_on_the_cpu() -> None:
    """Let a forked child, such as a DataLoader's worker, make its tensors on the CPU: it can't use CUDA."""
    for mode in _get_current_function_mode_stack():
        if isinstance(mode, DeviceMode):
            mode.device = torch.device("cpu")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_make_on_the_cpu)
