"""Moves PyTorch's tensors, all or none, and keeps what ties them together."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks.pytorch.in_place import InPlace
from gpu_magic.frameworks.pytorch.self_moving import SelfMovingObject
from gpu_magic.frameworks.pytorch.storages import Storages
from gpu_magic.frameworks.pytorch.tensors import is_odd, is_same_kind, leaf_of, type_and_shape
from gpu_magic.frameworks.transfer import Load, Transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["TensorTransfer"]


class TensorTransfer(Transfer):
    """Moves tensors, and objects that move themselves.

    Parameters, and other leaves that require grad, stay the same objects; other tensors are replaced by new
    ones. A storage is copied once, however many tensors lie in it. A view of a parameter becomes the same
    view of the moved parameter. Nothing is asked of the device before `copy`: that would start it.

    Parameters
    ----------
    device
        A `torch.device` with an index.
    convert
        Returns the tensor that another object (a NumPy array) is to become; None for an object that moves
        itself.

    """

    def __init__(self, device: Any, convert: Callable[[Any], Any]) -> None:
        self._device, self._convert = device, convert
        # By id. `_seen` keeps all objects alive, so that no two have the same id.
        self._seen: dict[int, Any] = {}
        self._converted: dict[int, Any] = {}
        self._kept: dict[int, Any] = {}  # tensors that stay the same objects
        self._copies: dict[int, Any] = {}
        self._objects: dict[int, SelfMovingObject] = {}
        # How each tensor is copied: with its storage, by its own method, or as a view of its leaf.
        self._storages = Storages()
        self._singles: list[Any] = []
        self._views: list[tuple[Any, Any]] = []
        self._in_place = InPlace(device)

    def add(self, arrays: Sequence[Any]) -> Load:
        """Add leaves first: how a computed tensor is moved depends on whether its leaf is."""
        total = _Total()
        computed = []
        pending = list(arrays)
        while pending:
            obj = pending.pop()
            if id(obj) in self._seen:
                continue
            self._seen[id(obj)] = obj
            tensor = self._as_tensor(obj)
            if tensor is None:
                self._objects[id(obj)] = moving = SelfMovingObject(obj)
                total.add(moving.load(self._device))
            elif tensor.device == self._device:
                total.arrays += tensor is not obj  # a NumPy array becomes a tensor of the CPU
            elif tensor.grad_fn is not None:
                computed.append(tensor)
            else:
                total.add_tensor(tensor, self._add_leaf(tensor))
                if tensor.grad is not None:
                    pending.append(tensor.grad)
        for tensor in computed:
            total.add_tensor(tensor, self._add_computed(tensor))
        return total.load

    def _as_tensor(self, obj: Any) -> Any:
        """Return an object's tensor: itself, or what it is converted to; None for one that moves itself."""
        if issubclass(type(obj), sys.modules["torch"].Tensor):
            return obj
        tensor = self._convert(obj)
        if tensor is not None:
            self._converted[id(obj)] = self._seen[id(tensor)] = tensor
        return tensor

    def _add_leaf(self, tensor: Any) -> int:
        """Decide how a leaf is moved, and return how many bytes that adds."""
        torch: Any = sys.modules["torch"]
        _check_has_data(tensor)
        if tensor.requires_grad or isinstance(tensor, torch.nn.Parameter):
            self._kept[id(tensor)] = tensor
        if not is_odd(torch, tensor):
            return self._storages.add(tensor)
        self._singles.append(tensor)
        return _nbytes(tensor)

    def _add_computed(self, tensor: Any) -> int:
        """Decide how a tensor that backward goes through is moved, and return how many bytes that adds."""
        _check_has_data(tensor)
        leaf = leaf_of(tensor)
        if id(leaf) in self._kept and is_same_kind(tensor, leaf):
            self._views.append((tensor, leaf))
            return 0
        self._singles.append(tensor)
        return int(tensor.nbytes)

    def copy(self) -> Iterator[int]:
        torch: Any = sys.modules["torch"]
        with torch.inference_mode(mode=False), torch.no_grad():
            for tensor in self._kept.values():
                self._in_place.check(tensor)
            yield from self._storages.copy(self._device, self._keep_copy)
        for tensor in self._singles:
            is_computed = tensor.grad_fn is not None
            with torch.inference_mode(mode=False), torch.set_grad_enabled(is_computed):
                # A computed tensor's copy is part of its graph; a leaf's has the data alone.
                old = tensor if is_computed else tensor.data
                self._copies[id(tensor)] = old.to(self._device)
            yield _nbytes(tensor)
        for moving in self._objects.values():
            moving.copy(self._device)
            yield 0

    def _keep_copy(self, tensor: Any, new: Any) -> None:
        """Keep a tensor's copy; one that replaces the tensor gets its type and attributes."""
        if id(tensor) not in self._kept:
            new = new.as_subclass(type(tensor)) if type(new) is not type(tensor) else new
            vars(new).update(vars(tensor))
        self._copies[id(tensor)] = new

    def commit(self) -> None:
        offsets = {id(leaf): int(leaf.storage_offset()) for _, leaf in self._views}
        for tensor in self._kept.values():
            new_grad = None if tensor.grad is None else self.replacement(tensor.grad)
            self._in_place.replace(tensor, self._copies[id(tensor)], new_grad)
        for moving in self._objects.values():
            moving.commit()
        self._set_gradients()
        with sys.modules["torch"].enable_grad():
            for view, leaf in self._views:
                # The leaf can begin elsewhere in its copy; the view keeps its distance from the leaf.
                offset = leaf.storage_offset() + view.storage_offset() - offsets[id(leaf)]
                self._copies[id(view)] = leaf.as_strided(view.size(), view.stride(), offset)

    def _set_gradients(self) -> None:
        """Give new tensors the gradients of those that they replace."""
        torch: Any = sys.modules["torch"]
        for key, tensor in self._seen.items():
            is_replaced = key in self._copies and key not in self._kept
            if (
                is_replaced
                and issubclass(type(tensor), torch.Tensor)
                and tensor.is_leaf
                and tensor.grad is not None
            ):
                self._copies[key].grad = self.replacement(tensor.grad)

    def replacement(self, array: Any) -> Any:
        if id(array) in self._kept:
            return array
        if id(array) in self._objects:
            return self._objects[id(array)].replacement
        tensor = self._converted.get(id(array), array)
        return self._copies.get(id(tensor), tensor)

    def undo(self) -> None:
        for moving in self._objects.values():
            with contextlib.suppress(Exception):  # the others are undone all the same
                moving.restore_attributes()
        self._in_place.undo()
        for moving in self._objects.values():
            with contextlib.suppress(Exception):
                moving.move_back()

    def before(self) -> Iterable[Any]:
        yield from self._storages.before()
        yield from (tensor for tensor in self._singles if id(tensor) not in self._kept)


class _Total:
    """Adds up the load of several tensors and objects."""

    def __init__(self) -> None:
        self.arrays, self._nbytes, self._origins = 0, 0, set[str]()

    def add(self, load: Load) -> None:
        self.arrays += load.arrays
        self._nbytes += load.nbytes
        self._origins.update(load.origins)

    def add_tensor(self, tensor: Any, nbytes: int) -> None:
        self.arrays += 1
        self._nbytes += nbytes
        self._origins.add(str(tensor.device))

    @property
    def load(self) -> Load:
        return Load(self.arrays, self._nbytes, self._origins)


def _check_has_data(tensor: Any) -> None:
    if tensor.device.type == "meta":
        raise PlacementError(f"{type_and_shape(tensor)} is on the meta device and has no data to move.")


def _nbytes(tensor: Any) -> int:
    return int(tensor.nbytes) if tensor.layout == sys.modules["torch"].strided else 0
