"""What stands in for objects of PyTorch's in a predicted step, as they need a GPU. It imports PyTorch."""

from __future__ import annotations

import contextlib
import functools
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from gpu_magic.frameworks.prediction import NotFollowed
from gpu_magic.frameworks.shadow.objects import SHARED
from gpu_magic.frameworks.shadow.refusals import refuse
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Autocast", "stand_in"]

_SHARED = (torch.device, torch.dtype, torch.layout, torch.memory_format, torch.Size)


class Autocast(torch.amp.autocast_mode.autocast):  # type: ignore[misc] # the type checker does not see PyTorch
    """Mixed precision of a GPU, on the CPU's fake tensors: a GPU's default dtype is float16."""

    def __init__(
        self,
        device_type: str = "cuda",
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if dtype is None:
            dtype = torch.get_autocast_dtype(device_type if isinstance(device_type, str) else "cuda")
        super().__init__("cpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class _CudaAutocast(Autocast):
    """`torch.cuda.amp.autocast`, which is called without a device."""

    def __init__(
        self,
        enabled: bool = True,
        dtype: Any = torch.float16,
        cache_enabled: bool = True,
    ) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class _Scaler(torch.amp.GradScaler):  # type: ignore[misc]
    """A `GradScaler` that finds all gradients finite, which it would have to read."""

    def __init__(self, *args: Any, **options: Any) -> None:
        options.pop("device", None)
        if args and isinstance(args[0], str | torch.device):
            args = args[1:]
        super().__init__("cpu", *args, **options)

    def _maybe_opt_step(self, optimizer: Any, optimizer_state: Any, *args: Any, **options: Any) -> Any:
        del optimizer_state
        return optimizer.step(*args, **options)

    def update(self, new_scale: Any = None) -> None:
        del new_scale
        getattr(self, "_per_optimizer_states", {}).clear()  # one that is disabled has none

    def get_scale(self) -> float:
        return float(self._init_scale)


class _NoAnomaly(contextlib.nullcontext[None]):
    """`torch.autograd.detect_anomaly` and `set_detect_anomaly`, which change nothing."""

    def __init__(self, *values: object, **options: object) -> None:
        del values, options
        super().__init__()


class _Torch(ModuleType):
    """`torch`, or a module of it, as the user's code sees it in a predicted step."""

    def __init__(self, module: ModuleType, replaced: dict[str, Any]) -> None:
        super().__init__(module.__name__)
        self.__dict__["_module"] = module
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_module"], name)


def stand_in(obj: Any) -> Any:
    """Return what stands in for an object of PyTorch's that is not a tensor; None for any other object."""
    if isinstance(obj, _SHARED):
        return SHARED
    if isinstance(obj, torch.Generator):
        return _generator(obj)
    if isinstance(obj, ModuleType):
        return _modules().get(obj)
    if obj is torch.save:  # it writes in C++, which no hook of Python's is told of
        return _save
    if isinstance(obj, type):
        return _CLASSES.get(obj)
    if isinstance(obj, torch.amp.autocast_mode.autocast):
        return Autocast(obj.device, obj.fast_dtype, obj._enabled, obj._cache_enabled)  # noqa: SLF001
    if isinstance(obj, torch.amp.GradScaler):
        return _Scaler(init_scale=getattr(obj, "_init_scale", 1.0), enabled=obj._enabled)  # noqa: SLF001
    if isinstance(obj, torch.utils.data.DataLoader):
        raise NotFollowed("it goes over a DataLoader: give it one batch, batch = next(iter(loader))")
    return None


def _generator(obj: Any) -> Any:
    """Return a copy of a generator of the CPU; one of a GPU is shared, as nothing is drawn there."""
    if obj.device.type != "cpu":
        return SHARED
    with torch._C.DisableTorchFunction(), _disable_current_modes():  # noqa: SLF001
        return torch.Generator().set_state(obj.get_state())


@functools.cache
def _modules() -> dict[Any, Any]:
    """Return the modules whose functions would start a GPU, or write files."""
    amp = _Torch(torch.amp, {"autocast": Autocast, "GradScaler": _Scaler})
    cuda_amp = _Torch(torch.cuda.amp, {"autocast": _CudaAutocast, "GradScaler": _Scaler})
    nothing = dict.fromkeys(
        ("empty_cache", "ipc_collect", "reset_max_memory_allocated", "reset_peak_memory_stats", "set_device"),
        _nothing,
    )
    nothing |= dict.fromkeys(("synchronize", "manual_seed", "manual_seed_all"), _nothing)
    zero = dict.fromkeys(
        ("current_device", "max_memory_allocated", "max_memory_reserved", "memory_allocated"), _zero
    )
    zero["memory_reserved"] = _zero
    cuda = _Torch(torch.cuda, {"amp": cuda_amp, **nothing, **zero})
    # Anomaly detection reads each gradient.
    anomaly = {"detect_anomaly": _NoAnomaly, "set_detect_anomaly": _NoAnomaly}
    autograd = _Torch(torch.autograd, anomaly)
    top = {"cuda": cuda, "amp": amp, "autograd": autograd, "autocast": Autocast}
    top |= {"save": _save, "manual_seed": _nothing}
    return {
        torch: _Torch(torch, top),
        torch.cuda: cuda,
        torch.amp: amp,
        torch.autograd: autograd,
        torch.cuda.amp: cuda_amp,
    }


def _nothing(*values: object, **options: object) -> None:
    del values, options


def _zero(*values: object, **options: object) -> int:
    del values, options
    return 0


def _save(obj: object, file: object = "", *values: object, **options: object) -> None:
    del obj, values, options
    refuse(f"it would write to {shortened(str(file), 60)}")


_CLASSES: dict[Any, Callable[..., Any]] = {
    torch.amp.autocast_mode.autocast: Autocast,
    torch.cuda.amp.autocast_mode.autocast: _CudaAutocast,
    torch.amp.GradScaler: _Scaler,
    torch.cuda.amp.GradScaler: _Scaler,
    torch.autograd.detect_anomaly: _NoAnomaly,
    torch.autograd.set_detect_anomaly: _NoAnomaly,
}
