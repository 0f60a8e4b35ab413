"""What has to be known of a PyTorch tensor before it is moved."""

from __future__ import annotations

import sys
from typing import Any

from gpu_magic.text import with_article

__all__ = [
    "is_dense",
    "is_odd",
    "is_same_kind",
    "is_wrapper",
    "leaf_of",
    "tensor_over",
    "type_and_shape",
]


def leaf_of(view: Any) -> Any:
    """Return the leaf that a tensor is a differentiable view of; None for one that was computed otherwise."""
    step = view.grad_fn if view._is_view() else None  # noqa: SLF001
    while step is not None and not hasattr(step, "variable"):
        step = step.next_functions[0][0] if len(step.next_functions) == 1 else None
    leaf = step.variable if step is not None else None
    is_same = leaf is not None and leaf.untyped_storage()._cdata == view.untyped_storage()._cdata  # noqa: SLF001
    return leaf if is_same else None


def is_same_kind(view: Any, leaf: Any) -> bool:
    """Return whether a view shows a leaf's elements as they are, and not as another dtype."""
    bits = view.is_conj() == leaf.is_conj() and view.is_neg() == leaf.is_neg()
    return bool(view.dtype == leaf.dtype and bits)


def is_odd(torch: Any, tensor: Any) -> bool:
    """Return whether a tensor is anything else than a view of a storage: quantized, nested, a wrapper."""
    is_plain = tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_nested
    return not is_plain or is_wrapper(torch, tensor) or torch.nn.parameter.is_lazy(tensor)


def is_wrapper(torch: Any, tensor: Any) -> bool:
    """Return whether a tensor only wraps others, as torchao's and DTensor do."""
    kind = type(tensor)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return False
    return bool(torch.utils._python_dispatch.is_traceable_wrapper_subclass(tensor))  # noqa: SLF001


def is_dense(tensor: Any) -> bool:
    """Return whether a tensor's elements lie next to each other, in whatever order of dimensions."""
    expected = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.size(), strict=True)):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


def tensor_over(storage: Any, dtype: Any, offset: int, size: Any, stride: Any) -> Any:
    """Return a tensor over a storage; its offset and strides are in elements."""
    empty = sys.modules["torch"].empty(0, dtype=dtype, device=storage.device)
    return empty.set_(storage, offset, size, stride)


def type_and_shape(tensor: Any) -> str:
    """Return a tensor's type and shape, as the beginning of a sentence."""
    return f"{with_article(type(tensor).__name__, 'A')} of shape {tuple(tensor.shape)}"
