"""Moves PyTorch's tensors, all or none, and keeps what ties them together. Loaded only where torch is."""

from __future__ import annotations

import contextlib
import copy
import sys
import warnings
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks.pytorch.tensors import type_and_shape
from gpu_magic.move.copies import Copies, Load
from gpu_magic.objects.walk import tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["Tensors", "told"]

# Bytes that are copied between two progress reports, and between two chances to interrupt.
_PIECE = 64 << 20
# A span begins at a multiple of this many bytes, so that every dtype's elements keep their alignment.
_ALIGNMENT = 16


class Tensors(Copies):
    """Moves tensors, and objects that move themselves.

    Parameters, and other leaves that require grad, stay the same objects; other tensors are replaced by new
    ones. A storage is copied once, however many tensors lie in it. A view of a parameter becomes the same
    view of the moved parameter. Nothing is asked of the device before `copy`: that would start it.

    Parameters
    ----------
    device
        A `torch.device` with an index.

    """

    def __init__(self, device: Any) -> None:
        self._device = device
        # By id. `_seen` keeps all objects alive, so that no two have the same id.
        self._seen: dict[int, Any] = {}
        self._converted: dict[int, Any] = {}
        self._kept: dict[int, Any] = {}  # tensors that stay the same objects
        self._copied: dict[int, Any] = {}
        # How each is copied: with its storage, by its own method, as a view of its leaf, or by its owner.
        self._spans: dict[int, _Span] = {}
        self._singles: list[Any] = []
        self._views: list[tuple[Any, Any]] = []
        self._objects: dict[int, _SelfMoving] = {}
        self._sets_data: dict[tuple[Any, ...], bool] = {}  # see `_can_set_data`
        self._undo: list[Callable[[], None]] = []

    def add(self, arrays: Sequence[Any]) -> Load:
        """Add leaves first: how a computed tensor is moved depends on whether its leaf is."""
        torch: Any = sys.modules["torch"]
        count, nbytes, devices = 0, 0, set[Any]()
        computed, pending = [], list(arrays)
        while pending:
            obj = pending.pop()
            if id(obj) in self._seen:
                continue
            self._seen[id(obj)] = obj
            is_tensor = issubclass(type(obj), torch.Tensor)
            for tensor in (obj,) if is_tensor else self._add_other(obj):
                device = tensor.device
                if device == self._device:
                    count += id(obj) in self._converted  # a NumPy array becomes a tensor of the CPU as well
                    continue
                count += 1
                devices.add(device)
                if not is_tensor and id(obj) in self._objects:
                    nbytes += _nbytes(tensor)
                elif device.type == "meta":
                    what = type_and_shape(tensor)
                    raise PlacementError(f"{what} is on the meta device and has no data to move.")
                elif tensor.grad_fn is not None:
                    computed.append(tensor)
                else:
                    nbytes += self._add_leaf(torch, tensor)
                    if tensor.grad is not None:
                        pending.append(tensor.grad)
        nbytes += sum(map(self._add_computed, computed))
        return Load(count, nbytes, set(map(str, devices)))

    def _add_computed(self, tensor: Any) -> int:
        """Decide how a tensor that backward goes through is moved, and return how many bytes that adds."""
        leaf = _leaf_of(tensor)
        if id(leaf) in self._kept and _is_same_kind(tensor, leaf):
            self._views.append((tensor, leaf))
            return 0
        self._singles.append(tensor)
        return int(tensor.nbytes)

    def _add_other(self, obj: Any) -> list[Any]:
        """Return the tensor that a NumPy array becomes, or those of an object that moves itself."""
        tensor = _from_numpy(obj)
        if tensor is None:
            self._objects[id(obj)] = _SelfMoving(obj)
            return tensors_in(obj)
        self._converted[id(obj)] = self._seen[id(tensor)] = tensor
        return [tensor]

    def _add_leaf(self, torch: Any, tensor: Any) -> int:
        """Decide how a leaf is moved, and return how many bytes that adds."""
        if tensor.requires_grad or isinstance(tensor, torch.nn.Parameter):
            self._kept[id(tensor)] = tensor
        if _is_odd(torch, tensor):
            self._singles.append(tensor)
            return _nbytes(tensor)
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001 - which storage it is, even where it is empty
        span = self._spans.get(key)
        if span is None:
            span = self._spans[key] = _Span(storage)
        before = span.nbytes
        span.include(tensor)
        if span.end > span.size:
            raise PlacementError(
                f"{type_and_shape(tensor)} has no memory at present (its storage was resized)."
            )
        return span.nbytes - before

    def copy(self) -> Iterator[int]:
        torch: Any = sys.modules["torch"]
        with torch.inference_mode(mode=False), torch.no_grad():
            for tensor in self._kept.values():
                self._check_kept(tensor)
            small, nbytes = list[_Span](), 0
            for span in self._spans.values():
                if span.nbytes > _PIECE or not span.is_one_tensor:
                    yield from self._copy_bytes(torch, span)
                    continue
                small.append(span)
                nbytes += span.nbytes
                if nbytes >= _PIECE:
                    yield self._copy_whole(torch, small, nbytes)
                    small, nbytes = [], 0
            yield self._copy_whole(torch, small, nbytes)
        for tensor in self._singles:
            is_computed = tensor.grad_fn is not None
            with torch.inference_mode(mode=False), torch.set_grad_enabled(is_computed):
                # A computed tensor's copy is part of its graph; a leaf's has the data alone.
                old = tensor if is_computed else tensor.data
                self._copied[id(tensor)] = old.to(self._device)
            yield _nbytes(tensor)
        for moving in self._objects.values():
            moving.copy(self._device)
            yield 0

    def _copy_whole(self, torch: Any, spans: Sequence[_Span], nbytes: int) -> int:
        """Copy tensors that have their storage to themselves, many in one call."""
        if spans:
            old = [span.tensors[0].data for span in spans]
            new = [torch.empty_like(tensor, device=self._device) for tensor in old]
            torch._foreach_copy_(new, old)
            for span, tensor in zip(spans, new, strict=True):
                self._keep_copy(span.tensors[0], tensor)
        return nbytes

    def _copy_bytes(self, torch: Any, span: _Span) -> Iterator[int]:
        """Copy a span piece by piece, and lay tensors into the copy as they lie in the storage."""
        old = _tensor_over(span.storage, torch.uint8, span.begin, (span.nbytes,), (1,))
        new = torch.empty(span.nbytes, dtype=torch.uint8, device=self._device)
        for begin in range(0, span.nbytes, _PIECE):
            new[begin : begin + _PIECE].copy_(old[begin : begin + _PIECE])
            yield min(_PIECE, span.nbytes - begin)
        for tensor in span.tensors:
            offset = tensor.storage_offset() - span.begin // tensor.element_size() if tensor.numel() else 0
            laid = _tensor_over(new.untyped_storage(), tensor.dtype, offset, tensor.size(), tensor.stride())
            laid = laid.conj() if tensor.is_conj() else laid
            self._keep_copy(tensor, torch._neg_view(laid) if tensor.is_neg() else laid)  # noqa: SLF001

    def _keep_copy(self, tensor: Any, new: Any) -> None:
        """Keep a tensor's copy; one that replaces the tensor gets its type and attributes."""
        if id(tensor) not in self._kept:
            new = new.as_subclass(type(tensor)) if type(new) is not type(tensor) else new
            vars(new).update(vars(tensor))
        self._copied[id(tensor)] = new

    # In place

    def _check_kept(self, tensor: Any) -> None:
        """Check that a tensor can get other memory, before anything is copied.

        Where PyTorch lets a tensor have memory of the device (CPU and CUDA), its `data` is set. Else the
        whole tensor is swapped with a new one, if nothing else holds on to it. The conditions are those of
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

    def _can_set_data(self, tensor: Any) -> bool:
        torch: Any = sys.modules["torch"]
        kind = type(tensor), tensor.layout, tensor.device
        answer = self._sets_data.get(kind)
        if answer is None:
            is_other_type = tensor.device.type != self._device.type and tensor.layout == torch.strided
            like = torch.empty(0, device=self._device)
            answer = self._sets_data[kind] = not _is_wrapper(torch, tensor) and (
                not is_other_type or bool(torch._has_compatible_shallow_copy_type(tensor, like))  # noqa: SLF001
            )
        return answer

    def commit(self) -> None:
        torch: Any = sys.modules["torch"]
        offsets = {id(leaf): int(leaf.storage_offset()) for _, leaf in self._views}
        for tensor in self._kept.values():
            self._replace(torch, tensor)
        for moving in self._objects.values():
            moving.commit()
        for key, tensor in self._seen.items():  # new tensors get the gradients of those that they replace
            if key not in self._copied or key in self._kept or not issubclass(type(tensor), torch.Tensor):
                continue
            if tensor.is_leaf and tensor.grad is not None:
                self._copied[key].grad = self.replacement(tensor.grad)
        with torch.enable_grad():
            for view, leaf in self._views:
                # The leaf can begin elsewhere in its copy; the view keeps its distance from the leaf.
                offset = leaf.storage_offset() + view.storage_offset() - offsets[id(leaf)]
                self._copied[id(view)] = leaf.as_strided(view.size(), view.stride(), offset)

    def _replace(self, torch: Any, tensor: Any) -> None:
        """Give a tensor the memory of its copy, and its gradient that of the gradient's copy."""
        grad, new = tensor.grad, self._copied[id(tensor)]
        if self._can_set_data(tensor):
            self._undo.append(partial(_reset_data, tensor, tensor.data, grad))
            if grad is not None:
                tensor.grad = None  # it has to be on its tensor's device
            tensor.data = new
        else:
            if isinstance(tensor, torch.nn.Parameter):
                new = torch.nn.Parameter(new, requires_grad=tensor.requires_grad)
            new.requires_grad_(tensor.requires_grad)
            vars(new).update(vars(tensor))
            self._undo.append(partial(_swap_back, tensor, new, tensor.device, grad))
            tensor.grad = None
            torch.utils.swap_tensors(tensor, new)
        if grad is not None:
            tensor.grad = self.replacement(grad)

    def replacement(self, array: Any) -> Any:
        key = id(array)
        if key in self._kept:
            return array
        if key in self._objects:
            return self._objects[key].replacement
        tensor = self._converted.get(key, array)
        return self._copied.get(id(tensor), tensor)

    def undo(self) -> None:
        steps = [moving.move_back for moving in self._objects.values()]
        steps += [*self._undo, *(moving.restore_attributes for moving in self._objects.values())]
        while steps:
            with contextlib.suppress(Exception):  # the others are undone all the same
                steps.pop()()

    def before(self) -> Iterator[Any]:
        """Return an empty tensor over each storage, and the tensors that were copied otherwise."""
        torch: Any = sys.modules["torch"]
        for span in self._spans.values():
            yield _tensor_over(span.storage, torch.uint8, 0, (0,), (1,))
        yield from (tensor for tensor in self._singles if id(tensor) not in self._kept)


class _Span:
    """The part of a storage that is copied: from the first byte of the tensors in it to the last."""

    __slots__ = ("begin", "end", "nbytes", "size", "storage", "tensors")

    def __init__(self, storage: Any) -> None:
        self.storage, self.size = storage, int(storage.nbytes())
        self.begin, self.end, self.nbytes = self.size, 0, 0
        self.tensors: list[Any] = []

    def include(self, tensor: Any) -> None:
        self.tensors.append(tensor)
        count = tensor.numel()
        if not count:
            return
        size, first = tensor.element_size(), tensor.storage_offset()
        last = first + count
        if not tensor.is_contiguous():
            strides = zip(tensor.size(), tensor.stride(), strict=True)
            last = first + 1 + sum((length - 1) * stride for length, stride in strides)
        self.begin = min(self.begin, first * size // _ALIGNMENT * _ALIGNMENT)
        self.end = max(self.end, last * size)
        self.nbytes = self.end - self.begin

    @property
    def is_one_tensor(self) -> bool:
        """Whether one tensor fills the storage, so that a plain copy of the tensor will do."""
        tensor = self.tensors[0]
        is_whole = len(self.tensors) == 1 and self.size == tensor.nbytes
        return is_whole and not tensor.is_conj() and not tensor.is_neg() and _is_dense(tensor)


class _SelfMoving:
    """An object that is moved by its own method `to`.

    It is not known whether that changes the object or returns another, so it is called on a shallow copy. The
    object gets the copy's attributes where the copy was changed.
    """

    def __init__(self, obj: Any) -> None:
        self._obj = self.replacement = obj
        self._attributes: dict[str, Any] | None = None  # what the object gets, where `to` has changed it
        self._before: dict[str, Any] | None = None
        self._devices: set[Any] = set()

    def copy(self, device: Any) -> None:
        """Move a copy of the object. Mutable containers among its attributes are copied as well."""
        self._devices = {tensor.device for tensor in tensors_in(self._obj)}
        twin = copy.copy(self._obj)
        for name, value in vars(self._obj).items():
            if type(value) in (dict, list, set):
                vars(twin)[name] = copy.copy(value)
        moved = twin.to(device)
        if moved is twin or moved is None:
            self._attributes = vars(twin)
        else:
            self.replacement = moved

    def commit(self) -> None:
        if self._attributes is not None:
            self._before = dict(vars(self._obj))
            vars(self._obj).update(self._attributes)

    def restore_attributes(self) -> None:
        """Take back `commit`."""
        if self._before is not None:
            vars(self._obj).clear()
            vars(self._obj).update(self._before)

    def move_back(self) -> None:
        """Take back `copy`: it can have moved what the copy shares with the object, a module for example."""
        if len(self._devices) == 1 and {tensor.device for tensor in tensors_in(self._obj)} - self._devices:
            self._obj.to(next(iter(self._devices)))


def _reset_data(tensor: Any, data: Any, grad: Any) -> None:
    tensor.grad = None
    tensor.data = data
    tensor.grad = grad


def _swap_back(tensor: Any, other: Any, device: Any, grad: Any) -> None:
    tensor.grad = None
    if tensor.device != device:  # not where the swap itself had failed
        sys.modules["torch"].utils.swap_tensors(tensor, other)
    tensor.grad = grad


# What has to be known of a tensor


def _leaf_of(view: Any) -> Any:
    """Return the leaf that a tensor is a differentiable view of; None for one that was computed otherwise."""
    step = view.grad_fn if view._is_view() else None  # noqa: SLF001
    while step is not None and not hasattr(step, "variable"):
        step = step.next_functions[0][0] if len(step.next_functions) == 1 else None
    leaf = step.variable if step is not None else None
    is_same = leaf is not None and leaf.untyped_storage()._cdata == view.untyped_storage()._cdata  # noqa: SLF001
    return leaf if is_same else None


def _is_same_kind(view: Any, leaf: Any) -> bool:
    """Return whether a view shows a leaf's elements as they are, and not as another dtype."""
    bits = view.is_conj() == leaf.is_conj() and view.is_neg() == leaf.is_neg()
    return bool(view.dtype == leaf.dtype and bits)


def _is_odd(torch: Any, tensor: Any) -> bool:
    """Return whether a tensor is anything else than a view of a storage: quantized, nested, a wrapper."""
    is_plain = tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_nested
    return not is_plain or _is_wrapper(torch, tensor) or torch.nn.parameter.is_lazy(tensor)


def _is_wrapper(torch: Any, tensor: Any) -> bool:
    """Return whether a tensor only wraps others, as torchao's and DTensor do."""
    kind = type(tensor)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return False
    return bool(torch.utils._python_dispatch.is_traceable_wrapper_subclass(tensor))  # noqa: SLF001


def _is_dense(tensor: Any) -> bool:
    """Return whether a tensor's elements lie next to each other, in whatever order of dimensions."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.size(), strict=True)):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


def _tensor_over(storage: Any, dtype: Any, offset: int, size: Any, stride: Any) -> Any:
    """Return a tensor over a storage; its offset and strides are in elements."""
    empty = sys.modules["torch"].empty(0, dtype=dtype, device=storage.device)
    return empty.set_(storage, offset, size, stride)


def _nbytes(tensor: Any) -> int:
    return int(tensor.nbytes) if tensor.layout == sys.modules["torch"].strided else 0


def _from_numpy(obj: Any) -> Any:
    """Return a tensor over a NumPy array's memory; None for any other object."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not issubclass(type(obj), numpy.ndarray):
        return None
    torch: Any = sys.modules["torch"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the array is read-only: the tensor is copied at once
        with contextlib.suppress(TypeError, ValueError):
            return torch.from_numpy(obj)
        with contextlib.suppress(TypeError, ValueError):  # it has negative strides, or another byte order
            return torch.from_numpy(numpy.ascontiguousarray(obj, obj.dtype.newbyteorder("=")))
    raise PlacementError(f"PyTorch has no tensors of NumPy's {obj.dtype}.")


# What modules need once their tensors are elsewhere


def told(objects: Iterable[Any], device: Any) -> Iterator[Callable[[], None]]:
    """Tell modules where they are now; yield what undoes each step before it is taken.

    Those that remember their device in a `to` or `_apply` of their own are called: Lightning's, the metrics
    of torchmetrics. Their tensors are on the device already, so the calls move nothing. As with a `to` of the
    user's, the outermost modules may refuse; what is within them is not asked by PyTorch's own `to`, so that
    it can't refuse here. Each RNN's weights become one piece, as with `Module.to`: cuDNN needs that. Where
    there is no room for it, PyTorch does it at every call instead, and warns.
    """
    nn: Any = sys.modules["torch"].nn
    modules = [obj for obj in objects if issubclass(type(obj), nn.Module)]
    inner = {id(child) for module in modules for child in module._modules.values()}  # noqa: SLF001
    own = {cls: _is_own(cls, "to") or _is_own(cls, "_apply") for cls in set(map(type, modules))}
    for module in sorted((one for one in modules if own[type(one)]), key=lambda one: id(one) in inner):
        within = nn.Module.modules(module)  # not its own method, which can be anything
        before = [(one, dict(vars(one)), dict(one._parameters)) for one in within]  # noqa: SLF001
        yield partial(_restore, before)
        with contextlib.suppress(Exception) if id(module) in inner else contextlib.nullcontext():
            module.to(device)
        for one, attributes, parameters in before:
            one._parameters.update(parameters)  # noqa: SLF001 - those that became new ones
            mine = vars(one)
            for name, value in attributes.items():  # and lists that became new ones of the same items
                now = mine.get(name)
                if type(value) is list is type(now) and list(map(id, value)) == list(map(id, now)):
                    mine[name] = value
    for module in modules:
        if issubclass(type(module), nn.RNNBase):
            with contextlib.suppress(RuntimeError):
                module.flatten_parameters()


def _is_own(cls: type, method: str) -> bool:
    """Return whether a module's method is another package's, or the user's, and not PyTorch's."""
    owner = next((base for base in cls.__mro__ if method in vars(base)), None)
    return owner is not None and owner.__module__.partition(".")[0] != "torch"


def _restore(before: Sequence[tuple[Any, dict[str, Any], dict[str, Any]]]) -> None:
    for module, attributes, parameters in before:
        module._parameters.update(parameters)  # noqa: SLF001
        vars(module).update(attributes)
