"""Moves objects of unknown types that have tensors, and a method `to` of their own."""

from __future__ import annotations

import copy
import sys
from typing import Any

from gpu_magic.frameworks.transfer import Load

__all__ = ["SelfMovingObject", "tensors_in"]


class SelfMovingObject:
    """An object that is moved by its own method `to`.

    It is not known whether that changes the object or returns another, so it is called on a shallow copy. The
    object gets the copy's attributes where the copy was changed.

    Parameters
    ----------
    obj
        The object.

    """

    def __init__(self, obj: Any) -> None:
        self._obj = obj
        self._moved: Any = None  # what `to` made, where that is another object
        self._attributes: dict[str, Any] | None = None  # what the object gets otherwise
        self._attributes_before: dict[str, Any] | None = None
        self._devices_before: set[Any] = set()

    def load(self, device: Any) -> Load:
        """Return how much it has on other devices."""
        torch: Any = sys.modules["torch"]
        tensors = [tensor for tensor in tensors_in(self._obj) if tensor.device != device]
        nbytes = sum(int(tensor.nbytes) for tensor in tensors if tensor.layout == torch.strided)
        return Load(len(tensors), nbytes, {str(tensor.device) for tensor in tensors})

    def copy(self, device: Any) -> None:
        """Move a copy of the object. Mutable containers among its attributes are copied as well."""
        self._devices_before = {tensor.device for tensor in tensors_in(self._obj)}
        twin = copy.copy(self._obj)
        for name, value in vars(self._obj).items():
            if type(value) in (dict, list, set):
                vars(twin)[name] = copy.copy(value)
        moved = twin.to(device)
        if moved is twin or moved is None:
            self._attributes = vars(twin)
        else:
            self._moved = moved

    def commit(self) -> None:
        if self._attributes is not None:
            self._attributes_before = dict(vars(self._obj))
            vars(self._obj).update(self._attributes)

    @property
    def replacement(self) -> Any:
        """The object that takes its place; itself where that was changed."""
        return self._obj if self._moved is None else self._moved

    def restore_attributes(self) -> None:
        """Take back `commit`."""
        if self._attributes_before is not None:
            vars(self._obj).clear()
            vars(self._obj).update(self._attributes_before)

    def move_back(self) -> None:
        """Take back `copy`: it can have moved what the copy shares with the object, a module for example."""
        if len(self._devices_before) != 1:
            return
        if {tensor.device for tensor in tensors_in(self._obj)} - self._devices_before:
            self._obj.to(next(iter(self._devices_before)))


def tensors_in(obj: Any) -> list[Any]:
    """Return the tensors that an object has: as attributes, in plain containers and modules there.

    The object walker of `placement` is built on the frameworks, so it can't be used here; and the tensors
    have to be found again after `to` has run, when they can be others.
    """
    torch: Any = sys.modules["torch"]
    found: list[Any] = []
    pending: list[Any] = [getattr(obj, "__dict__", {})]
    seen = set()
    while pending:
        value: Any = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        kind = type(value)  # and not isinstance, which asks a user's object for its __class__
        if issubclass(kind, torch.Tensor):
            found.append(value)
        elif issubclass(kind, torch.nn.Module):
            pending += [*value.parameters(), *value.buffers()]
        elif issubclass(kind, dict):
            pending += dict.values(value)
        elif issubclass(kind, list | tuple):
            pending += value
    return found
