"""Turns what a function is given into what one would type: a number, a `Gpu`, a `torch.device`, several."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterable

from gpu_magic.devices.model import Gpu, MigInstance
from gpu_magic.errors import ChoiceError, PlacementError

__all__ = ["can_name_device", "normalize_device", "normalize_request"]


def normalize_device(device: object) -> str:
    """Return what one would type after `%%on_gpu` for a device, or for several.

    Raises
    ------
    PlacementError
        The object can't name a device.

    """
    if isinstance(device, Gpu):
        return f"smi:{device.index}"
    if isinstance(device, bool | bytes | set | frozenset | dict) or callable(device):
        raise PlacementError(f"{device!r:.40} does not name a device; try on_gpu(0) or on_gpu('cpu').")
    if isinstance(device, str | MigInstance):
        return normalize_request(device)
    with contextlib.suppress(TypeError):
        return str(operator.index(device))  # type: ignore[arg-type] # any integer: NumPy's, too
    if isinstance(device, Iterable):
        return ",".join(map(normalize_device, device))
    return str(device)  # str(torch.device) is what one would type


def can_name_device(device: object) -> bool:
    """Return whether an object is of a type that names one device; None names the default one."""
    is_pytorch_device = type(device).__name__ == "device"
    if device is None or isinstance(device, str | Gpu | MigInstance) or is_pytorch_device:
        return True
    return hasattr(device, "__index__") and not isinstance(device, bool)


def normalize_request(request: object) -> str:
    """Return what one would type after `%gpus` for a request.

    Raises
    ------
    ChoiceError
        The object can't name GPUs in an order.

    """
    if isinstance(request, str):
        return request
    if isinstance(request, Gpu):
        return str(request.index)
    if isinstance(request, MigInstance):
        return request.uuid
    if isinstance(request, bool | set | frozenset | bytes):  # neither a number nor an order is meant by these
        raise ChoiceError(f"{request!r} does not name GPUs in an order; try choose(1) or choose([1, 3]).")
    with contextlib.suppress(TypeError):
        return str(operator.index(request))  # type: ignore[arg-type] # any integer: NumPy's, too
    if isinstance(request, Iterable):
        return ",".join(map(normalize_request, request))
    raise ChoiceError(f"{request!r} does not name a GPU; try choose(1), choose([1, 3]) or choose('auto').")
