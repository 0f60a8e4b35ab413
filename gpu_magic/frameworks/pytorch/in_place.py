"""Gives tensors the memory of their copies, so that parameters stay the same objects."""

from __future__ import annotations

import contextlib
import sys
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks.pytorch.tensors import is_wrapper, type_and_shape

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["InPlace"]


class InPlace:
    """Replaces the memory of tensors, and can take that back.

    Where PyTorch lets a tensor have memory of the device (CPU and CUDA), its `data` is set. Else the whole
    tensor is swapped with a new one, which PyTorch allows only where nothing else holds on to it.

    Parameters
    ----------
    device
        Where the new memory is.

    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._sets_data: dict[tuple[Any, ...], bool] = {}  # by what the answer depends on
        self._undo: list[Callable[[], None]] = []

    def check(self, tensor: Any) -> None:
        """Check that a tensor can be replaced, before anything is copied.

        Raises
        ------
        PlacementError
            It would have to be swapped, and something holds on to it. The conditions are those of
            `torch.utils.swap_tensors` (PyTorch 2.13), which notices some of them half-way.

        """
        if self._can_set_data(tensor):
            return
        uses = tensor._use_count()  # noqa: SLF001
        if uses > 2 or weakref.getweakrefs(tensor) or tensor._backward_hooks:  # noqa: SLF001, PLR2004
            raise PlacementError(
                f"{type_and_shape(tensor)} can't be moved to {self._device}: a graph, a hook or a weak "
                "reference holds on to it. Delete what was computed with it (a loss, outputs), and try "
                "again."
            )

    def replace(self, tensor: Any, new: Any, new_grad: Any) -> None:
        """Give a tensor the memory of a new one, and another gradient where it has one."""
        grad = tensor.grad
        if self._can_set_data(tensor):
            self._undo.append(partial(_reset_data, tensor, tensor.data, grad))
            tensor.grad = None  # a gradient has to be on its tensor's device
            tensor.data = new
        else:
            other = _like(tensor, new)
            self._undo.append(partial(_swap_back, tensor, other, tensor.device, grad))
            tensor.grad = None
            sys.modules["torch"].utils.swap_tensors(tensor, other)
        if grad is not None:
            tensor.grad = new_grad

    def undo(self) -> None:
        while self._undo:
            with contextlib.suppress(Exception):  # the others are undone all the same
                self._undo.pop()()

    def _can_set_data(self, tensor: Any) -> bool:
        torch: Any = sys.modules["torch"]
        kind = type(tensor), tensor.layout, tensor.device
        answer = self._sets_data.get(kind)
        if answer is None:
            is_other_type = tensor.device.type != self._device.type and tensor.layout == torch.strided
            like = torch.empty(0, device=self._device)
            answer = not is_wrapper(torch, tensor) and (
                not is_other_type or bool(torch._has_compatible_shallow_copy_type(tensor, like))  # noqa: SLF001
            )
            self._sets_data[kind] = answer
        return answer


def _like(tensor: Any, new: Any) -> Any:
    """Return a tensor with new memory that can be swapped with another: of its kind, with its attributes."""
    torch: Any = sys.modules["torch"]
    if isinstance(tensor, torch.nn.Parameter):
        new = torch.nn.Parameter(new, requires_grad=tensor.requires_grad)
    new.requires_grad_(tensor.requires_grad)
    vars(new).update(vars(tensor))
    return new


def _reset_data(tensor: Any, data: Any, grad: Any) -> None:
    tensor.grad = None
    tensor.data = data
    tensor.grad = grad


def _swap_back(tensor: Any, other: Any, device: Any, grad: Any) -> None:
    tensor.grad = None
    if tensor.device != device:  # not where the swap itself had failed
        sys.modules["torch"].utils.swap_tensors(tensor, other)
    tensor.grad = grad
