"""PyTorch's tensors without memory of their own, objects with rules of their own, and its current device."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from gpu_magic.frameworks.private import private_of

__all__ = [
    "device_switch",
    "execution_devices",
    "has_own",
    "inner_tensors",
    "innermost",
    "is_wrapper",
    "nbytes_of",
    "sparse_parts",
]

# Types of the attributes that every module has, which are no hooks.
_NO_HOOKS = frozenset((dict, OrderedDict, set, list, tuple, str, bool, int, float, type(None)))


def sparse_parts(tensor: Any) -> list[Any]:
    """Return the dense tensors that make up a sparse tensor. Empty for another tensor."""
    torch: Any = sys.modules["torch"]
    if tensor.layout == torch.sparse_coo:  # its public methods raise an error unless it is coalesced
        parts = [private_of(tensor, f"torch:Tensor.{name}") for name in ("_indices", "_values")]
        if None in parts:
            return [tensor.indices(), tensor.values()] if tensor.is_coalesced() else []
        return [part() for part in parts]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return []


def is_wrapper(kind: type) -> bool:
    """Return whether tensors of a type wrap other tensors: DTensor, jagged tensors, torchao's."""
    plain = sys.modules["torch"].Tensor.__torch_dispatch__
    return hasattr(kind, "__tensor_flatten__") or getattr(kind, "__torch_dispatch__", plain) is not plain


def inner_tensors(tensor: Any) -> list[Any]:
    """Return the tensors that hold the data of a sparse tensor or a wrapper. Empty for another tensor."""
    torch: Any = sys.modules["torch"]
    kind = type(tensor)
    if not is_wrapper(kind):
        return [] if tensor.layout is torch.strided else sparse_parts(tensor.detach())
    if hasattr(kind, "__tensor_flatten__"):
        names = tensor.__tensor_flatten__()[0]
    else:
        names = [*vars(tensor), *(name for base in kind.__mro__ for name in vars(base).get("__slots__", ()))]
    found = [getattr(tensor, name, None) for name in names]
    return [one for one in found if isinstance(one, torch.Tensor) and one is not tensor and one.numel()]


def innermost(tensor: Any) -> list[Any]:
    """Return the tensors with memory of their own that make up a tensor. It can be the only one."""
    if inner := inner_tensors(tensor):
        return [one for part in inner for one in innermost(part)]
    return [tensor]


def nbytes_of(tensor: Any) -> int:
    """Return the bytes of a tensor's elements. Those of a wrapper are the bytes of its inner tensors."""
    strided = sys.modules["torch"].strided
    return sum(int(one.nbytes) for one in innermost(tensor) if one.layout == strided)


def has_own(kind: type, method: str) -> bool:
    """Return whether a tensor's or a module's method replaces PyTorch's general one.

    That of an RNN makes one block of its weights, which `%to_gpu` does itself.
    """
    torch: Any = sys.modules["torch"]
    general = (torch.Tensor, torch.nn.Module, torch.nn.RNNBase)
    return getattr(kind, method, None) not in [getattr(one, method, None) for one in general]


def execution_devices(module: Any) -> tuple[list[Any], str]:
    """Return the devices that hooks of a module send its inputs to, and the package of the hooks.

    Accelerate, for example, keeps such hooks as attributes of modules that it has dispatched.
    """
    devices, package = list[Any](), ""
    pending = [one for one in vars(module).values() if type(one) not in _NO_HOOKS]
    if not pending:  # as in most modules
        return devices, package
    kinds, seen = str | int | sys.modules["torch"].device, set[int]()
    while pending:
        hook = pending.pop()
        held = getattr(hook, "__dict__", None)
        if not isinstance(held, dict) or id(hook) in seen:
            continue
        seen.add(id(hook))
        if isinstance(device := held.get("execution_device"), kinds):
            devices.append(device)
            package = type(hook).__module__.partition(".")[0]
        more = held.get("hooks")  # several hooks as one, or anything else of another object
        pending += [*more.values()] if isinstance(more, Mapping) else more if isinstance(more, tuple) else []
    return devices, package


def device_switch(device: Any) -> Any:
    """Return a context manager that makes a device current. Its exit restores the previous device."""
    torch: Any = sys.modules["torch"]
    switch = torch.cuda.device if device.type == "cuda" else torch.accelerator.device_index
    return switch(device.index)
