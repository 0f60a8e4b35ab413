"""What one would type for what a function is given: a number, a `Gpu`, a `torch.device`, several of them."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterable

from gpu_magic.devices.model import Gpu, MigInstance
from gpu_magic.errors import ChoiceError, PlacementError

__all__ = ["can_name_device", "normalize_device", "normalize_request"]


def normalize_device(wanted: object) -> str:
    """Return what one would type behind `%%on_gpu` for it."""
    if isinstance(wanted, Gpu):
        return f"smi:{wanted.index}"
    if isinstance(wanted, bool | bytes | set | frozenset | dict) or callable(wanted):
        raise PlacementError(f"{wanted!r:.40} names no device; try on_gpu(0) or on_gpu('cpu').")
    if isinstance(wanted, str | MigInstance):
        return normalize_request(wanted)
    with contextlib.suppress(TypeError):
        return str(operator.index(wanted))  # type: ignore[arg-type] # any integer: NumPy's, too
    if isinstance(wanted, Iterable):
        return ",".join(map(normalize_device, wanted))
    return str(wanted)  # a torch.device is written as it is typed


def can_name_device(device: object) -> bool:
    if device is None or isinstance(device, str | Gpu | MigInstance) or type(device).__name__ == "device":
        return True  # the last is PyTorch's
    return hasattr(device, "__index__") and not isinstance(device, bool)


def normalize_request(wanted: object) -> str:
    """Return what one would type for it.

    Raises
    ------
    ChoiceError
        For what names no GPU.

    """
    if isinstance(wanted, str):
        return wanted
    if isinstance(wanted, Gpu):
        return str(wanted.index)
    if isinstance(wanted, MigInstance):
        return wanted.uuid
    if isinstance(wanted, bool | set | frozenset | bytes):  # neither a number nor an order is meant by these
        raise ChoiceError(f"{wanted!r} names no GPUs in an order; try choose(1) or choose([1, 3]).")
    with contextlib.suppress(TypeError):
        return str(operator.index(wanted))  # type: ignore[arg-type] # any integer: NumPy's, too
    if isinstance(wanted, Iterable):
        return ",".join(map(normalize_request, wanted))
    raise ChoiceError(f"{wanted!r} names no GPU; try choose(1), choose([1, 3]) or choose('auto').")
