"""The objects that variables are made of, and how they hold each other: what moves and what is rebuilt."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, cast

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks import get
from gpu_magic.objects.memory import holdings_of, is_same_device
from gpu_magic.objects.walk import Budget, Node, Walker, collection_paused
from gpu_magic.text import with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from gpu_magic.frameworks.answers import Components
    from gpu_magic.frameworks.base import Framework
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["Found", "Graph", "device_like", "framework_of"]

# The dtypes of NumPy that frameworks have, by `dtype.kind`: bool, integers, floats and complex numbers.
_NUMERIC = "biufc"


@dataclass(slots=True)
class Found:
    """What a variable holds that no variable before it did."""

    arrays: dict[str, list[Any]] = field(default_factory=dict)  # and self-moving objects, by their framework
    unmovable: list[str] = field(default_factory=list)  # why, and what to do
    there: list[Any] = field(default_factory=list)  # unmovable, and on the device already
    unmoved: list[tuple[Any, str]] = field(default_factory=list)  # what stays, with a reason or without one
    numpy: list[Any] = field(default_factory=list)  # NumPy's arrays that stay as they are
    shared: set[int] = field(default_factory=set)  # earlier variables that hold the same, counted from 1


class Graph:
    """Objects and what they hold, to any depth and with cycles. It reads, and changes nothing.

    Parameters
    ----------
    device
        The device to move to.
    converts
        The module of the framework that NumPy's arrays are converted for; None: they stay.
    budget
        How many objects may be looked at. None: all that the variables lead to.

    """

    def __init__(
        self, device: LogicalDevice, converts: str | None = None, budget: Budget | None = None
    ) -> None:
        self._device, self._converts = device, converts
        self._walker = Walker(device, budget)
        self._count = self._before = 0  # of variables, and of the objects that were known before the last one
        # All by the object's id.
        self._first: dict[int, int] = {}  # the number of the variable that it was found in
        self._components: dict[int, Components] = {}
        self.arrays: dict[int, Any] = {}  # and objects that move themselves
        self._data: set[int] = set()  # objects of another package, which can remember their device
        self._current: dict[int, Any] = {}  # what takes the place of an object, since `rebuild`

    def add(self, variable: Any) -> Found:
        """Find all that a variable leads to."""
        found = Found()
        self._count += 1
        self._before = len(self._walker.visited)
        with collection_paused():
            for obj, node, components in self._walker.walk([variable]):
                key = id(obj)
                if node.kind == "visited":
                    if key in self._components or key in self.arrays:
                        found.shared.add(self._first[key])
                    continue
                self._first[key] = self._count
                if components is not None:
                    self._components[key] = components
                if node.kind == "data":
                    self._data.add(key)
                elif node.kind != "composite":
                    self._add_leaf(obj, node, found)
        found.shared.discard(self._count)
        return found

    def drop_last(self) -> None:
        """Forget the last variable, with all that no variable before it leads to."""
        self._count -= 1
        for key in self._walker.forget_after(self._before):
            for table in (self._first, self._components, self.arrays):
                table.pop(key, None)
            self._data.discard(key)

    def _add_leaf(self, obj: Any, node: Node, found: Found) -> None:
        """Sort in an array, or what can't be moved."""
        module = node.framework.module if node.framework is not None else None
        if node.kind == "numpy" and self._converts is not None and _is_convertible(obj):
            module = self._converts
        if module is not None:
            self.arrays[id(obj)] = obj
            found.arrays.setdefault(module, []).append(obj)
        elif node.kind == "numpy":
            if obj.dtype != object:
                found.numpy.append(obj)
        elif node.kind == "unmovable":
            devices = {holding.device for holding in holdings_of([obj]).values()}
            if devices and all(is_same_device(device, self._device) for device in devices):
                found.there.append(obj)
            else:
                found.unmovable.append(node.reason)
        elif node.kind == "unmoved":
            found.unmoved.append((obj, node.reason))

    def rebuild(self, replacement: Callable[[Any], Any]) -> list[tuple[Components, list[Any]]]:
        """Build the objects again that hold a replaced array and can't be changed.

        Returns
        -------
        list
            Of the objects that hold something replaced and can be changed, what they hold and will hold.

        Raises
        ------
        PlacementError
            Objects that can't be changed hold each other in a cycle.

        """
        replaced = ((key, array, replacement(array)) for key, array in self.arrays.items())
        self._current = {key: new for key, array, new in replaced if new is not array}
        affected = self._holders_of(self._current)
        anew = {key for key in affected if not self._components[key].in_place}
        held = {key: {id(child) for child in self._components[key].children} & anew for key in anew}
        try:
            order = list(TopologicalSorter(held).static_order())  # each after those that it holds
        except CycleError as error:
            name = with_article(type(self._walker.visited[error.args[1][0]]).__name__, "A")
            raise PlacementError(
                f"{name} that can't be changed holds itself, and can't be built anew."
            ) from None
        for key in order:
            components = self._components[key]
            if components.put is not None:
                self._current[key] = components.put(components.children, self._now_of(key))
        return [(self._components[key], self._now_of(key)) for key in affected - anew]

    def unchanged_arrays(self) -> set[int]:
        """Return the ids of the arrays that no other has taken the place of."""
        return self.arrays.keys() - self._current.keys()

    def composites(self) -> Iterator[Any]:
        """Return all objects that are made of other objects."""
        return (self._walker.visited[key] for key in self._components)

    def now(self, obj: Any) -> Any:
        """Return what takes the place of an object since `rebuild`; the object itself where it stays."""
        return self._current.get(id(obj), obj)

    def _now_of(self, key: int) -> list[Any]:
        """Return what an object holds now; of data, its device is the new one as well."""
        children = self._components[key].children
        if key not in self._data:
            return [self.now(child) for child in children]
        return [device_like(child, self._device) or self.now(child) for child in children]

    def _holders_of(self, replaced: Collection[int]) -> set[int]:
        """Return the objects that hold a replaced one, or one that is built again because of that."""
        if not replaced:
            return set()
        holders: dict[int, set[int]] = {}
        for key, components in self._components.items():
            for child in components.children:
                if id(child) in self._components or id(child) in replaced:  # most others are plain values
                    holders.setdefault(id(child), set()).add(key)
        found: set[int] = set()
        pending = list(replaced)
        while pending:
            new = holders.get(pending.pop(), set()) - found
            found |= new
            pending += (key for key in new if not self._components[key].in_place)
        return found


def framework_of(module: str) -> Framework:
    """Return the framework of arrays that were found, which is there since they are."""
    return cast("Framework", get(module))


def device_like(value: Any, device: LogicalDevice) -> Any:
    """Return PyTorch's own object for a device, in place of such an object; None for any other."""
    kind = getattr(sys.modules.get("torch"), "device", None)
    return framework_of("torch").own_device(device) if kind is not None and type(value) is kind else None


def _is_convertible(array: Any) -> bool:
    """Return whether an array is nothing more, as a mask or units would be lost, and of a numeric dtype."""
    numpy: Any = sys.modules["numpy"]
    return type(array) in (numpy.ndarray, numpy.memmap) and array.dtype.kind in _NUMERIC
