"""Moves PyTorch's tensors, so that tied weights and views stay tied. Imported only if PyTorch is."""

from __future__ import annotations

import contextlib
import sys
import warnings
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks.private import private, private_of
from gpu_magic.frameworks.pytorch import type_and_shape
from gpu_magic.frameworks.torch_objects import has_own, is_wrapper, nbytes_of
from gpu_magic.move.copies import Copies, Variable
from gpu_magic.objects.parts import attributes_of_tensor
from gpu_magic.objects.walk import Walker, tensors_of
from gpu_magic.objects.where import holdings_in

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from gpu_magic.frameworks.base import Framework
    from gpu_magic.frameworks.target import LogicalDevice

__all__ = ["Tensors"]

_ALIGNMENT = 16  # bytes; a span starts at a multiple, so that elements of each dtype stay aligned
# The least bytes of a copy through pinned memory, and the bytes of each of its pieces.
_LARGE, _PIECE = 1 << 20, 32 << 20


@dataclass(slots=True)
class _Span:
    """The part of a storage to copy, from the first byte of its tensors to the last."""

    storage: Any
    begin: int
    end: int = 0
    tensors: list[Any] = field(default_factory=list)


class Tensors(Copies):
    """Moves tensors, NumPy arrays that become tensors, and objects that move themselves.

    Parameters, and other leaves that require grad, stay the same objects. New tensors replace other tensors.
    A storage is copied once for all its tensors. A view of a parameter becomes the same view of the moved
    parameter.
    """

    def __init__(self, framework: Framework, device: LogicalDevice, undo: contextlib.ExitStack) -> None:
        super().__init__(framework, device)
        self._device, self._undo = framework.own_device(device), undo
        self._torch: Any = sys.modules["torch"]
        self._seen: dict[int, Any] = {}  # by id, like the next ones. Kept, so that ids stay unique
        self._kept: dict[int, Any] = {}  # tensors that stay the same objects
        self._copied: dict[int, Any] = {}
        # By the way to copy: with the storage, alone, in the graph, from NumPy, with the object's own method.
        self._parts: dict[tuple[int, int], Any] = {}  # the one tensor that is all of a storage, or a `_Span`
        self._alone: list[Any] = []
        self._computed: list[Any] = []
        self._numpy: list[tuple[Any, Any]] = []  # an array, and the tensor over it
        self._objects: list[tuple[Any, set[Any], Variable]] = []  # an object, its devices, its variable
        self._counted: set[Hashable] = set()  # keys of the memory of such objects
        self._with_grad: list[tuple[Any, Any]] = []

    def add(self, arrays: Sequence[Any], variable: Variable) -> None:
        torch, target, pending = self._torch, self._device, [*arrays]
        known, origin = len(self._computed), None
        while pending:
            obj = pending.pop()
            if id(obj) in self._seen:
                continue
            self._seen[id(obj)] = obj
            if not issubclass(type(obj), torch.Tensor):
                self._numpy.append((obj, tensor := _over_numpy(torch, obj)))
                variable.arrays += 1
                variable.nbytes += self._add_leaf(tensor)
                variable.origins.add("NumPy")
                continue
            if (device := obj.device) == target:
                continue
            if device != origin:
                if device.type == "meta":
                    raise PlacementError(_no_data(obj))
                variable.origins.add(str(origin := device))
            variable.arrays += 1
            if obj.grad_fn is not None:
                self._computed.append(obj)
                continue
            variable.nbytes += self._add_leaf(obj)
            if (grad := obj.grad) is not None:
                self._with_grad.append((obj, grad))
                pending.append(grad)
        computed = self._computed[known:]  # a view needs no memory if its leaf moves
        variable.nbytes += sum(nbytes_of(one) for one in computed if self._leaf_of(one) is None)

    def add_object(self, obj: Any, arrays: Sequence[Any], variable: Variable) -> None:
        self._objects.append((obj, {tensor.device for tensor in arrays}, variable))
        for tensor in arrays:
            key = tuple(one.key for one in self._framework.holdings(tensor))
            if tensor.device == self._device or key in self._counted:
                continue
            if tensor.device.type == "meta":
                raise PlacementError(_no_data(tensor))
            self._counted.add(key)
            variable.arrays += 1
            variable.nbytes += (nbytes := nbytes_of(tensor))
            variable.origins.add(str(tensor.device))
            if tensor is obj and tensor.is_floating_point():  # its own `to` can quantize it
                self.shrinkable += nbytes
        if issubclass(type(obj), self._torch.Tensor) and obj.is_leaf and obj.grad is not None:
            self._with_grad.append((obj, obj.grad))
            self.add([obj.grad], variable)

    def _add_leaf(self, tensor: Any) -> int:
        """Decide how to copy a leaf, and return the bytes that it adds."""
        torch, kind = self._torch, type(tensor)
        if tensor.requires_grad or isinstance(tensor, torch.nn.Parameter):
            self._kept[id(tensor)] = tensor
        is_plain = kind is torch.nn.Parameter or kind is torch.Tensor
        is_odd = not is_plain and (is_wrapper(kind) or torch.nn.parameter.is_lazy(tensor))
        # Quantized and nested tensors are not just views of a storage. `is_neg`: negated on reading.
        if (
            is_odd
            or tensor.layout is not torch.strided
            or tensor.is_quantized
            or tensor.is_nested
            or tensor.is_neg()
        ):
            self._alone.append(tensor)
            return nbytes_of(tensor)
        storage, nbytes = tensor.untyped_storage(), tensor.nbytes
        total, offset = storage.nbytes(), tensor.storage_offset()
        # Empty storages have no address, and each can be resized later. So their key is the tensor's id.
        key = storage.data_ptr() or id(tensor), total
        span = self._parts.get(key)
        is_whole = nbytes == total and not offset and tensor.is_contiguous()
        # The `to` of another class can change the tensor itself, as that of bitsandbytes does.
        if span is None and is_plain and is_whole and nbytes < _LARGE:
            self._parts[key] = tensor
            return int(nbytes)
        size = tensor.element_size()
        first = end = offset * size
        if nbytes:
            strides = zip(tensor.size(), tensor.stride(), strict=True)
            end += size + size * sum((length - 1) * stride for length, stride in strides)
        if end > total:
            raise PlacementError(f"{type_and_shape(tensor)} has no memory now (its storage was resized).")
        if span is None:
            span = self._parts[key] = _Span(storage, total)
        elif not isinstance(span, _Span):  # the tensor that is all of the storage
            span = self._parts[key] = _Span(storage, 0, total, [span])
        before = max(0, span.end - span.begin)
        span.tensors.append(tensor)
        if nbytes:
            span.begin = min(span.begin, first - first % _ALIGNMENT)
            span.end = max(span.end, end)
        return max(0, span.end - span.begin) - before

    def _leaf_of(self, view: Any) -> Any:
        """Return the leaf of a differentiable view, if the leaf stays the same object. Else None."""
        leaf = private_of(view, "torch:Tensor._base")
        if id(leaf) not in self._kept or leaf.dtype != view.dtype or view.is_conj() or view.is_neg():
            return None
        is_same = leaf.untyped_storage().data_ptr() == view.untyped_storage().data_ptr()
        return leaf if is_same else None

    def copy(self) -> Iterator[int]:
        torch = self._torch
        with torch.inference_mode(mode=False), torch.no_grad():
            for part in self._parts.values():
                if isinstance(part, _Span):
                    yield self._copy_span(part)
                else:  # `copy=True`, because a NumPy array can already be on the device
                    self._keep_copy(part, part.to(self._device, copy=True))
                    yield part.nbytes
            for tensor in self._alone:
                new = self._copied[id(tensor)] = tensor.data.to(self._device)
                if id(tensor) not in self._kept:
                    self.new[id(tensor)] = new
                yield nbytes_of(tensor)
        with torch.inference_mode(mode=False), torch.enable_grad():
            for tensor in self._computed:  # the copy joins the graph
                if self._leaf_of(tensor) is None:
                    self.new[id(tensor)] = tensor.to(self._device)
                    yield nbytes_of(tensor)
        for array, tensor in self._numpy:
            self.new[id(array)] = self.new[id(tensor)]
        yield from self._copy_objects()

    def _copy_objects(self) -> Iterator[int]:
        """Call the own `to` of objects and tensors that move themselves."""
        for obj, devices, variable in self._objects:
            if issubclass(type(obj), self._torch.Tensor):
                yield self._copy_by_own_to(obj, variable)
                continue
            self._undo.callback(_move_back, obj, devices, dict(vars(obj)))
            moved = obj.to(self._device)
            if moved is not None and moved is not obj:
                self.new[id(obj)] = moved
            yield 0

    def _copy_by_own_to(self, tensor: Any, variable: Variable) -> int:
        """Call a tensor's own `to`, which can quantize it, and do with the result as `nn.Module.to` does.

        A parameter stays the same object, with the new data. Its `to` can also change it, what it keeps, and
        the layer that it refers to.
        """
        held = Walker()
        for _ in held.walk(attributes_of_tensor(tensor).children):
            pass
        objects = [tensor, *vars(tensor).values(), *held.visited.values()]
        attributes = [(one, getattr(one, "__dict__", None)) for one in objects]
        before = [(one, dict(there)) for one, there in attributes if isinstance(there, dict)]
        old, nbytes = tensor.data, self._memory_of(tensor)
        self._undo.callback(_put_back_tensor, tensor, old, before)
        is_kept = tensor.is_leaf and (tensor.requires_grad or isinstance(tensor, self._torch.nn.Parameter))
        _unpack(tensor)
        with self._torch.set_grad_enabled(not is_kept):  # the copy of a computed tensor joins the graph
            moved = tensor.to(self._device)
        if not is_kept:
            self.new[id(tensor)] = moved
        elif moved is not tensor:
            tensor.data = moved.data
            kept, plain = vars(tensor), self._torch.Tensor
            # Of an 8-bit weight, the data and their scale, until its layer has taken them.
            inner = [name for name, one in vars(moved).items() if isinstance(one, plain)]
            kept.update({name: vars(moved)[name] for name in inner if isinstance(kept.get(name), plain)})
        now = self._memory_of(moved)
        variable.nbytes += now - nbytes
        return now

    def _memory_of(self, tensor: Any) -> int:
        """Return the bytes of a tensor and of what it keeps. Views of one storage count once."""
        found = holdings_in((one, self._framework) for one in tensors_of(tensor))
        return sum(one.nbytes for one in found.values())

    def _copy_span(self, span: _Span) -> int:
        """Copy a part of a storage, and create the same tensors in the copy."""
        nbytes = max(0, span.end - span.begin)
        over = partial(_tensor_over, self._torch)
        old = over(span.storage, self._torch.uint8, span.begin, (nbytes,), (1,))
        is_staged = nbytes >= _LARGE and {old.device.type, self._device.type} == {"cpu", "cuda"}
        new = self._staged(old) if is_staged else old.to(self._device, copy=True)
        for tensor in span.tensors:
            size = tensor.element_size()
            offset = tensor.storage_offset() - span.begin // size if tensor.numel() else 0
            laid = over(new.untyped_storage(), tensor.dtype, offset, tensor.size(), tensor.stride())
            self._keep_copy(tensor, laid.conj() if tensor.is_conj() else laid)
        return nbytes

    @cached_property
    def _stages(self) -> list[Any]:
        """Two pinned buffers. Empty if no memory can be pinned."""
        torch = self._torch
        with contextlib.suppress(RuntimeError):
            return [torch.empty(_PIECE, dtype=torch.uint8, device="cpu", pin_memory=True) for _ in range(2)]
        return []

    def _staged(self, old: Any) -> Any:
        """Copy bytes through two pinned buffers. One is filled while the other is sent.

        CUDA does the same for memory that is not pinned, but with one thread. On an H200 (driver 580.159),
        two buffers took a fifth of the time of `Tensor.to` to the GPU, and a tenth from the GPU.
        """
        torch, to_gpu = self._torch, self._device.type == "cuda"
        # Pinning memory starts CUDA on the current GPU, if CUDA has not started on another GPU.
        with torch.cuda.device(self._device if to_gpu else old.device):
            if not self._stages:
                return old.to(self._device, copy=True)
            new = torch.empty_like(old, device=self._device)
            stages = [(buffer, torch.cuda.Event()) for buffer in self._stages]
            filled: list[tuple[Any, Any, Any]] = []  # pieces from the GPU that are still in a buffer

            def empty() -> None:
                buffer, done, target = filled.pop()
                done.synchronize()
                target.copy_(buffer)

            for number, (source, target) in enumerate(zip(old.split(_PIECE), new.split(_PIECE), strict=True)):
                whole, done = stages[number % 2]
                buffer = whole[: len(source)]
                done.synchronize()
                buffer.copy_(source, non_blocking=not to_gpu)
                if to_gpu:
                    target.copy_(buffer, non_blocking=True)
                done.record()
                if filled:
                    empty()
                if not to_gpu:
                    filled.append((buffer, done, target))
            if filled:
                empty()
            torch.cuda.current_stream().synchronize()
        return new

    def _keep_copy(self, tensor: Any, new: Any) -> None:
        """Keep a tensor's copy. A copy that replaces the tensor gets its type and attributes."""
        self._copied[id(tensor)] = new
        if id(tensor) not in self._kept:
            new = new if type(new) is type(tensor) else new.as_subclass(type(tensor))
            vars(new).update(vars(tensor))
            self.new[id(tensor)] = new

    # In place

    def put(self) -> None:
        leaves = [(view, leaf) for view in self._computed if (leaf := self._leaf_of(view)) is not None]
        offsets = [view.storage_offset() - leaf.storage_offset() for view, leaf in leaves]
        done: list[tuple[Any, Any, Any]] = []
        self._undo.callback(_put_back, done)
        parameter = self._torch.nn.Parameter
        for key, tensor in self._kept.items():
            try:
                if type(tensor) is not parameter and is_wrapper(type(tensor)):
                    raise RuntimeError  # noqa: TRY301 - as below
                old, grad = tensor.data, tensor.grad
                tensor.data = self._copied[key]
                done.append((tensor, old, grad))
            except RuntimeError:  # the tensor cannot have memory of that device
                self._swap(tensor, self._copied[key])
        for tensor, grad in self._with_grad:
            self.new.get(id(tensor), tensor).grad = self.new.get(id(grad), grad)
        with self._torch.enable_grad():
            for (view, leaf), offset in zip(leaves, offsets, strict=True):
                at = leaf.storage_offset() + offset
                self.new[id(view)] = leaf.as_strided(view.size(), view.stride(), at)

    def _swap(self, tensor: Any, new: Any) -> None:
        """Swap a tensor and its copy. PyTorch refuses this while a graph holds the tensor."""
        torch, grad, attributes = self._torch, tensor.grad, vars(tensor)
        if isinstance(tensor, torch.nn.Parameter):
            new = torch.nn.Parameter(new, requires_grad=tensor.requires_grad)
        mine = vars(new.requires_grad_(tensor.requires_grad))  # these hold the inner tensors of a wrapper
        mine.update(attributes | mine)

        def swap() -> None:
            tensor.grad = None
            try:
                torch.utils.swap_tensors(tensor, new)
            except RuntimeError:
                tensor.grad = grad
                raise PlacementError(
                    f"{type_and_shape(tensor)} cannot be moved to {self._device}: a graph, a hook or a weak "
                    "reference holds on to it. Delete what was computed with it (a loss, outputs), and try "
                    "again."
                ) from None

        swap()
        self._undo.callback(setattr, tensor, "grad", grad)
        self._undo.callback(swap)

    def update_modules(self, objects: Iterable[Any], is_told: Callable[[Any], bool]) -> None:
        """Call `to` of modules with their own `to` or `_apply`, because they remember their device.

        Their tensors are already on the device, so the calls move nothing. PyTorch's own `to` calls only
        `_apply` of inner modules, so errors of an inner `to` are ignored here. The weights of each RNN become
        one block, as cuDNN needs it. If that does not fit, PyTorch does it at every call, and warns.
        """
        nn = self._torch.nn
        modules = [obj for obj in objects if issubclass(type(obj), nn.Module)]
        methods = ["to"] + ["_apply"] * (private("torch.nn:Module._apply") is not None)
        own = {cls for cls in set(map(type, modules)) if any(has_own(cls, name) for name in methods)}
        inner = {id(child) for module in modules for child in nn.Module.children(module)} if own else ()
        future = self._torch.__future__
        overwrites = future.get_overwrite_module_params_on_conversion()
        for module in modules:
            is_rnn = issubclass(type(module), nn.RNNBase)
            has_own_to = type(module) in own or "to" in vars(module)
            if not (is_rnn or has_own_to) or not is_told(module):
                continue
            if has_own_to:
                before = [(one, dict(vars(one))) for one in nn.Module.modules(module)]
                self._undo.callback(_restore, before)
                future.set_overwrite_module_params_on_conversion(False)  # keep the optimizer's parameters
                try:
                    module.to(self._device)
                except Exception:
                    if id(module) not in inner or has_own(type(module), "_apply"):
                        raise
                finally:
                    future.set_overwrite_module_params_on_conversion(overwrites)
            if is_rnn:
                with contextlib.suppress(RuntimeError):
                    module.flatten_parameters()


def _move_back(obj: Any, devices: set[Any], attributes: dict[str, Any]) -> None:
    """Undo an object's own `to`, which can have moved objects that it holds, for example a module."""
    try:
        if len(devices) == 1:
            obj.to(*devices)
    finally:  # even if `to` raises an error
        _restore([(obj, attributes)])


def _put_back(done: Sequence[tuple[Any, Any, Any]]) -> None:
    for tensor, data, grad in done:
        tensor.data = data
        tensor.grad = grad


def _restore(before: Sequence[tuple[Any, dict[str, Any]]]) -> None:
    for obj, attributes in before:
        vars(obj).clear()
        vars(obj).update(attributes)


def _put_back_tensor(tensor: Any, data: Any, before: Sequence[tuple[Any, dict[str, Any]]]) -> None:
    tensor.data = data
    _restore(before)


def _unpack(tensor: Any) -> None:
    """Unpack a 4-bit weight that a forward pass on the CPU has packed for it.

    On another device, its numbers would be wrong. Its own `cuda` also unpacks it, but its own `to` does not
    (bitsandbytes 0.50).
    """
    state = vars(tensor).get("quant_state")
    if not getattr(state, "packing_format_for_cpu", False):
        return
    unpacked = private("bitsandbytes.functional:_convert_weight_packed_for_cpu_inverse")
    if unpacked is None:
        raise PlacementError(
            "The 4-bit weights were packed for the CPU when they ran there. Load the model again."
        )
    tensor.data, tensor.quant_state = unpacked(tensor.data, state)


def _no_data(tensor: Any) -> str:
    return f"{type_and_shape(tensor)} is on the meta device and has no data to move."


def _over_numpy(torch: Any, array: Any) -> Any:
    """Return a tensor over the memory of a NumPy array, or over a copy that PyTorch can use."""
    native, size = array.dtype.newbyteorder("="), array.itemsize
    if array.dtype != native or any(step < 0 or step % size for step in array.strides):
        array = array.astype(native, order="C")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # for a read-only array. The tensor is copied, never written to
        try:
            return torch.from_numpy(array)
        except TypeError:
            raise PlacementError(f"PyTorch has no {array.dtype} tensors.") from None


def _tensor_over(torch: Any, storage: Any, dtype: Any, offset: int, size: Any, stride: Any) -> Any:  # noqa: PLR0917
    """Return a tensor over a storage. Its offset and strides are in elements."""
    return torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, size, stride)
