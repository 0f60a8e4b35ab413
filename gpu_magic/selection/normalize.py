"""Turns what a function is given into what one would type: a number, a `Gpu`, a `torch.device`, several."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable
from numbers import Integral
from types import ModuleType

from gpu_magic.devices.model import Gpu, MigInstance
from gpu_magic.errors import ChoiceError, PlacementError
from gpu_magic.text import with_article

__all__ = ["can_name_device", "normalize_device", "normalize_request", "normalize_wait"]

_NO_DEVICES = (type(None), bool, bytes, set, frozenset, dict, ModuleType)


def normalize_device(device: object, device_of: Callable[[object], object] = lambda _: None) -> str:
    """Return what one would type after `%%on_gpu` for a device, or for several.

    Parameters
    ----------
    device
        A number, a text, a GPU, a framework's own object, or several of these.
    device_of
        Returns the device that a framework's own object stands for; None for any other object.

    Raises
    ------
    PlacementError
        The object can't name a device.

    """
    if isinstance(device, Gpu):
        return device.number_text if device.prefix else f"smi:{device.index}"
    if (named := device_of(device)) is not None:
        return str(named)
    if isinstance(device, _NO_DEVICES) or callable(device):
        what = f"The module {device.__name__}" if isinstance(device, ModuleType) else f"{device!r:.40}"
        raise PlacementError(f"{what} does not name a device; try on_gpu(0) or on_gpu('cpu').")
    if isinstance(device, str | MigInstance):
        return normalize_request(device)
    if _is_array(device):
        what = with_article(type(device).__name__, "A")
        raise PlacementError(f"{what} does not name a device; try on_gpu(0) or on_gpu('cpu').")
    with contextlib.suppress(TypeError):
        return str(operator.index(device))  # type: ignore[arg-type] # any integer: NumPy's, too
    if isinstance(device, Iterable):
        return ",".join(normalize_device(one, device_of) for one in device)
    return str(device)


def can_name_device(device: object) -> bool:
    """Return whether an object is of a type that names one device; None names the default one."""
    is_pytorch_device = type(device).__name__ == "device"
    if device is None or isinstance(device, str | Gpu | MigInstance) or is_pytorch_device:
        return True
    return hasattr(device, "__index__") and not isinstance(device, bool) and not _is_array(device)


def _is_array(value: object) -> bool:
    """Return whether a value is an array or a tensor: those of one integer can be an index, too."""
    return hasattr(value, "__index__") and hasattr(value, "__iter__")


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
        return request.number_text
    if isinstance(request, MigInstance):
        return request.uuid
    if isinstance(request, bool | set | frozenset | bytes):  # neither a number nor an order is meant by these
        raise ChoiceError(f"{request!r} does not name GPUs in an order; try choose(1) or choose([1, 3]).")
    with contextlib.suppress(TypeError):
        return str(operator.index(request))  # type: ignore[arg-type] # any integer: NumPy's, too
    try:
        entries = iter(request)  # type: ignore[call-overload]
    except TypeError:  # also of a tensor of one number, which has `__iter__`
        text = f"{request!r} does not name a GPU; try choose(1), choose([1, 3]) or choose('auto')."
        raise ChoiceError(text) from None
    return ",".join(map(normalize_request, entries))


def normalize_wait(wanted: object) -> str:
    """Return what one would type after `%gpus` to wait for GPUs: a number is how many of them.

    Raises
    ------
    ChoiceError
        The object can't name GPUs in an order.

    """
    if isinstance(wanted, Integral) and not isinstance(wanted, bool):
        return f"auto:{wanted}"
    try:
        return normalize_request(wanted)
    except ChoiceError:
        raise ChoiceError(
            f"{wanted!r:.60} names no GPUs to wait for; try wait_for(2), for any two, or wait_for([1, 3])."
        ) from None
