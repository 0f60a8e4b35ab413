"""Moves PyTorch's tensors, all or none, and keeps what ties them together."""

from __future__ import annotations

import contextlib
import copy
import sys
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks.base import Load, Transfer
from gpu_magic.frameworks.pytorch.tensors import (
    is_dense,
    is_odd,
    is_same_kind,
    is_wrapper,
    leaf_beneath,
    over,
    shape_of,
    tensors_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["TensorTransfer"]

# Bytes between two looks at the clock, and at an interrupt.
_PIECE = 64 << 20
# A span of a storage begins at a multiple of this, so that every dtype's elements keep their alignment.
_ALIGNED = 16


class _Span:
    """The part of a storage that is moved: from the first byte of the tensors that lie in it to the last."""

    __slots__ = ("high", "low", "storage", "tensors")

    def __init__(self, storage: Any) -> None:
        self.storage, self.low, self.high = storage, storage.nbytes(), 0
        self.tensors: list[Any] = []

    @property
    def nbytes(self) -> int:
        return max(0, int(self.high - self.low))

    def include(self, tensor: Any) -> None:
        self.tensors.append(tensor)
        count = tensor.numel()
        if not count:
            return
        size, first = tensor.element_size(), tensor.storage_offset()
        end = first + count
        if not tensor.is_contiguous():
            strides = zip(tensor.size(), tensor.stride(), strict=True)
            end = first + 1 + sum((length - 1) * stride for length, stride in strides)
        self.low = min(self.low, first * size // _ALIGNED * _ALIGNED)
        self.high = max(self.high, end * size)


class TensorTransfer(Transfer):
    """Parameters, and other leaves that require grad, stay the same objects; other tensors are made anew.

    A storage is copied once, however many tensors lie in it, and they lie in its copy as they did. Nothing is
    asked of the device before `copy`: that would start it.

    Parameters
    ----------
    device
        Where to, with its number.
    convert
        Returns the tensor of something else that is to become one (a NumPy array); None for an object that
        moves itself.

    """

    def __init__(self, device: Any, convert: Callable[[Any], Any]) -> None:
        self._device, self._convert = device, convert
        self._seen: dict[int, Any] = {}  # kept, so that no two objects have the same id
        self._converted: dict[int, Any] = {}
        self._kept: dict[int, Any] = {}
        self._spans: dict[int, _Span] = {}
        self._others: list[Any] = []  # what PyTorch copies itself: quantized, wrapped, part of a graph
        self._views: list[tuple[Any, Any]] = []  # those that backward goes through, and their leaf
        self._objects: list[Any] = []  # what moves itself
        self._copies: dict[int, Any] = {}
        self._undo: list[Callable[[], None]] = []
        self._compatible: dict[tuple[Any, ...], bool] = {}  # what `_takes` has found, by kinds of tensors

    def add(self, things: Sequence[Any]) -> Load:
        torch: Any = sys.modules["torch"]
        count, nbytes, origins = 0, 0, set[str]()
        last: list[Any] = []  # views, so that their leaves are known
        open_, is_last = list(things), False
        while open_ or not is_last:
            if not open_:
                open_, is_last = last, True
                continue
            thing = open_.pop()
            if id(thing) in self._seen and not is_last:
                continue
            self._seen[id(thing)] = thing
            tensor = thing
            if not isinstance(thing, torch.Tensor):
                tensor = self._convert(thing)
                if tensor is None:
                    self._objects.append(thing)
                    inside = [one for one in tensors_in(thing) if one.device != self._device]
                    count += len(inside)
                    nbytes += sum(int(one.nbytes) for one in inside if one.layout == torch.strided)
                    origins.update(str(one.device) for one in inside)
                    continue
                self._converted[id(thing)] = self._seen[id(tensor)] = tensor
            if tensor.device == self._device:
                count += tensor is not thing  # a NumPy array becomes a tensor of the CPU
                continue
            if tensor.grad_fn is not None and not is_last:
                last.append(tensor)
                continue
            if tensor.device.type == "meta":
                raise PlacementError(f"{shape_of(tensor)} is on the meta device and has no data to move.")
            if tensor.is_leaf and tensor.grad is not None:
                open_.append(tensor.grad)
            count += 1
            origins.add(str(tensor.device))
            nbytes += self._take(torch, tensor)
        return Load(count, nbytes, origins)

    def _take(self, torch: Any, tensor: Any) -> int:
        """Decide how a tensor is moved, and return how many bytes that adds."""
        if tensor.grad_fn is not None:
            leaf = leaf_beneath(tensor)
            if id(leaf) in self._kept and is_same_kind(tensor, leaf):
                self._views.append((tensor, leaf))
                return 0
            self._others.append(tensor)
            return int(tensor.nbytes)
        if tensor.requires_grad or isinstance(tensor, torch.nn.Parameter):
            self._kept[id(tensor)] = tensor
        if is_odd(torch, tensor):
            self._others.append(tensor)
            return int(tensor.nbytes) if tensor.layout == torch.strided else 0
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001 - which storage it is, also where it is empty
        span = self._spans.get(key)
        if span is None:
            span = self._spans[key] = _Span(storage)
        before = span.nbytes
        span.include(tensor)
        if span.high > storage.nbytes():
            raise PlacementError(f"{shape_of(tensor)} has no memory at present (its storage was resized).")
        return span.nbytes - before

    def copy(self) -> Iterator[int]:
        torch: Any = sys.modules["torch"]
        with torch.inference_mode(mode=False), torch.no_grad():
            self._refuse(torch)
            small: list[_Span] = []
            waiting = 0
            for span in self._spans.values():
                if span.nbytes > _PIECE or not _is_whole(span):
                    yield from self._copy_span(torch, span)
                    continue
                small.append(span)
                waiting += span.nbytes
                if waiting >= _PIECE:
                    self._copy_whole(torch, small)
                    yield waiting
                    small, waiting = [], 0
            self._copy_whole(torch, small)
            yield waiting
        for tensor in self._others:
            with torch.inference_mode(mode=False), torch.set_grad_enabled(tensor.grad_fn is not None):
                # Of a leaf the data alone; else backward goes through the copy, to where the graph is.
                old = tensor if tensor.grad_fn is not None else tensor.data
                self._copies[id(tensor)] = old.to(self._device)
            yield int(tensor.nbytes) if tensor.layout == torch.strided else 0
        for thing in self._objects:
            self._move_itself(thing)
            yield 0

    def _move_itself(self, thing: Any) -> None:
        """Have an object's twin move itself; the object gets what that has become.

        What both hold, a module for example, can be changed by it: then it is told to go back.
        """
        homes = {tensor.device for tensor in tensors_in(thing)}
        self._undo.append(partial(_send_home, thing, homes))
        twin = copy.copy(thing)
        for name, value in vars(thing).items():
            if type(value) in (dict, list, set):
                vars(twin)[name] = copy.copy(value)
        moved = twin.to(self._device)
        if moved is twin or moved is None:
            self._kept[id(thing)] = thing
        self._copies[id(thing)] = twin if moved is None else moved

    def _refuse(self, torch: Any) -> None:
        """Say so before anything is copied where a tensor can't stay the same object."""
        for tensor in self._kept.values():
            if not isinstance(tensor, torch.Tensor) or self._takes(torch, tensor):
                continue
            # As torch.utils.swap_tensors has it (PyTorch 2.13), which finds out half-way.
            uses = tensor._use_count()  # noqa: SLF001
            if uses > 2 or weakref.getweakrefs(tensor) or tensor._backward_hooks:  # noqa: SLF001, PLR2004
                raise PlacementError(
                    f"{shape_of(tensor)} can't be moved to {self._device}: a graph, a hook or a weak "
                    "reference holds on to it. Delete what was computed with it (a loss, outputs), and try "
                    "again."
                )

    def _takes(self, torch: Any, tensor: Any) -> bool:
        """Tell whether a tensor can take the device's memory for its own, as CPU's and CUDA's can."""
        kind = type(tensor), tensor.layout, tensor.device
        found = self._compatible.get(kind)
        if found is None:
            is_plain = tensor.device.type != self._device.type and tensor.layout == torch.strided
            like = torch.empty(0, device=self._device)
            found = not is_wrapper(torch, tensor) and (
                not is_plain or bool(torch._has_compatible_shallow_copy_type(tensor, like))  # noqa: SLF001
            )
            self._compatible[kind] = found
        return found

    def _copy_whole(self, torch: Any, spans: Sequence[_Span]) -> None:
        """Copy tensors that have their storage to themselves, many at once."""
        old = [span.tensors[0].data for span in spans]
        new = [torch.empty_like(one, device=self._device) for one in old]
        if new:
            torch._foreach_copy_(new, old)
        for span, one in zip(spans, new, strict=True):
            self._keep_copy(span.tensors[0], one)

    def _copy_span(self, torch: Any, span: _Span) -> Iterator[int]:
        """Copy bytes, and lay the tensors into the copy as they lay in the storage."""
        old = over(span.storage, torch.uint8, span.low, (span.nbytes,), (1,))
        new = torch.empty(span.nbytes, dtype=torch.uint8, device=self._device)
        for low in range(0, span.nbytes, _PIECE):
            new[low : low + _PIECE].copy_(old[low : low + _PIECE])
            yield min(_PIECE, span.nbytes - low)
        for tensor in span.tensors:
            first = self._first(tensor, span)
            one = over(new.untyped_storage(), tensor.dtype, first, tensor.size(), tensor.stride())
            one = one.conj() if tensor.is_conj() else one
            one = torch._neg_view(one) if tensor.is_neg() else one  # noqa: SLF001
            self._keep_copy(tensor, one)

    def _first(self, tensor: Any, span: _Span) -> int:
        """Return where a tensor begins in the copy of its span, in elements."""
        return int(tensor.storage_offset()) - span.low // tensor.element_size() if tensor.numel() else 0

    def _keep_copy(self, tensor: Any, new: Any) -> None:
        if id(tensor) not in self._kept:
            new = new.as_subclass(type(tensor)) if type(new) is not type(tensor) else new
            vars(new).update(vars(tensor))
        self._copies[id(tensor)] = new

    def commit(self) -> None:
        torch: Any = sys.modules["torch"]
        begins = {id(leaf): int(leaf.storage_offset()) for _, leaf in self._views}
        for one in self._kept.values():
            if isinstance(one, torch.Tensor):
                self._take_over(torch, one)
            else:
                before, mine = dict(vars(one)), vars(one)
                self._undo.append(partial(_restore, mine, before))
                mine.update(vars(self._copies[id(one)]))
        for tensor in self._seen.values():
            is_new = id(tensor) in self._copies and id(tensor) not in self._kept
            if is_new and isinstance(tensor, torch.Tensor) and tensor.is_leaf and tensor.grad is not None:
                self._copies[id(tensor)].grad = self.replacement(tensor.grad)
        with torch.enable_grad():
            for view, leaf in self._views:
                # Where the leaf begins in its copy, and how far from there the view does.
                first = leaf.storage_offset() + view.storage_offset() - begins[id(leaf)]
                self._copies[id(view)] = leaf.as_strided(view.size(), view.stride(), first)

    def _take_over(self, torch: Any, tensor: Any) -> None:
        """Give a tensor the memory of its copy; it stays the same object, and its gradient comes along."""
        grad, new = tensor.grad, self._copies[id(tensor)]
        if grad is not None:
            tensor.grad = None  # it may be nowhere else than its tensor
        if self._takes(torch, tensor):
            self._undo.append(partial(_give_back, tensor, tensor.data, grad))
            tensor.data = new
        else:
            is_parameter = isinstance(tensor, torch.nn.Parameter)
            other = torch.nn.Parameter(new, requires_grad=tensor.requires_grad) if is_parameter else new
            other.requires_grad_(tensor.requires_grad)
            vars(other).update(vars(tensor))
            self._undo.append(partial(_swap_back, tensor, other, tensor.device, grad))
            torch.utils.swap_tensors(tensor, other)
        if grad is not None:
            tensor.grad = self.replacement(grad)

    def replacement(self, thing: Any) -> Any:
        if id(thing) in self._kept:
            return thing
        thing = self._converted.get(id(thing), thing)
        return self._copies.get(id(thing), thing)

    def undo(self) -> None:
        while self._undo:
            with contextlib.suppress(Exception):  # the others are undone all the same
                self._undo.pop()()

    def before(self) -> Iterable[Any]:
        torch: Any = sys.modules["torch"]
        for span in self._spans.values():
            yield over(span.storage, torch.uint8, 0, (0,), (1,))
        yield from (one for one in self._others if id(one) not in self._kept)


def _send_home(thing: Any, homes: set[Any]) -> None:
    if len(homes) == 1 and {tensor.device for tensor in tensors_in(thing)} - homes:
        thing.to(next(iter(homes)))


def _is_whole(span: _Span) -> bool:
    """Tell whether a storage has one tensor, which fills it, so that a plain copy of that will do."""
    tensor = span.tensors[0]
    return (
        len(span.tensors) == 1
        and span.storage.nbytes() == tensor.nbytes
        and not tensor.is_conj()
        and not tensor.is_neg()
        and (tensor.is_contiguous() or is_dense(tensor))
    )


def _give_back(tensor: Any, old: Any, grad: Any) -> None:
    tensor.grad = None
    tensor.data = old
    tensor.grad = grad


def _swap_back(tensor: Any, other: Any, device: Any, grad: Any) -> None:
    tensor.grad = None
    if tensor.device != device:  # not where the swap itself had failed
        sys.modules["torch"].utils.swap_tensors(tensor, other)
    tensor.grad = grad


def _restore(attributes: dict[str, Any], before: dict[str, Any]) -> None:
    attributes.clear()
    attributes.update(before)
