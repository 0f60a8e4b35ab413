"""What has to be known of a PyTorch tensor before it is moved."""

from __future__ import annotations

import sys
from typing import Any

__all__ = [
    "is_dense",
    "is_odd",
    "is_same_kind",
    "is_wrapper",
    "leaf_beneath",
    "over",
    "shape_of",
    "tensors_in",
]


def tensors_in(thing: Any) -> list[Any]:
    """Return the tensors that an object has: as attributes, in plain containers and modules there."""
    torch: Any = sys.modules["torch"]
    found: list[Any] = []
    open_, seen = [getattr(thing, "__dict__", {})], set()
    while open_:
        one = open_.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            found.append(one)
        elif isinstance(one, torch.nn.Module):
            open_ += [*one.parameters(), *one.buffers()]
        elif isinstance(one, dict):
            open_ += one.values()
        elif isinstance(one, list | tuple):
            open_ += one
    return found


def leaf_beneath(view: Any) -> Any:
    """Return the leaf that a tensor is a view of, through which backward goes; None for what was computed."""
    step = view.grad_fn if view._is_view() else None  # noqa: SLF001
    while step is not None and not hasattr(step, "variable"):
        step = step.next_functions[0][0] if len(step.next_functions) == 1 else None
    leaf = step.variable if step is not None else None
    is_same = leaf is not None and leaf.untyped_storage()._cdata == view.untyped_storage()._cdata  # noqa: SLF001
    return leaf if is_same else None


def is_same_kind(view: Any, leaf: Any) -> bool:
    """Tell whether a view shows a leaf's elements as they are, and not as another dtype."""
    bits = view.is_conj() == leaf.is_conj() and view.is_neg() == leaf.is_neg()
    return bool(view.dtype == leaf.dtype and bits)


def is_odd(torch: Any, tensor: Any) -> bool:
    """Tell whether a tensor is more, or less, than a view of a storage."""
    is_plain = tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_nested
    return not is_plain or is_wrapper(torch, tensor) or torch.nn.parameter.is_lazy(tensor)


def is_wrapper(torch: Any, tensor: Any) -> bool:
    """Tell whether it only wraps other tensors, as torchao's and DTensor do."""
    kind = type(tensor)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return False
    return bool(torch.utils._python_dispatch.is_traceable_wrapper_subclass(tensor))  # noqa: SLF001


def is_dense(tensor: Any) -> bool:
    """Tell whether its elements lie next to each other, in whatever order of dimensions."""
    expected = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.size(), strict=True)):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


def over(storage: Any, dtype: Any, first: int, size: Any, stride: Any) -> Any:
    """Return a tensor over a storage."""
    empty = sys.modules["torch"].empty(0, dtype=dtype, device=storage.device)
    return empty.set_(storage, first, size, stride)


def shape_of(tensor: Any) -> str:
    return f"A {type(tensor).__name__} of shape {tuple(tensor.shape)}"
