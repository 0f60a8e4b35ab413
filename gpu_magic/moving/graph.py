"""The objects that variables are made of, and how they hold each other: what is moved, what is built anew."""

from __future__ import annotations

import sys
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks import device_like
from gpu_magic.placement.holdings import holdings_of, is_same_device
from gpu_magic.placement.walk import Node, Walker
from gpu_magic.text import with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from gpu_magic.frameworks.answers import Components
    from gpu_magic.placement.budget import Budget
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["Change", "Found", "Graph"]

# The dtypes of NumPy that frameworks have, by `dtype.kind`: bool, integers, floats and complex numbers.
_NUMERIC = "biufc"


class Found(NamedTuple):
    """What a variable holds that no variable before it did.

    Parameters
    ----------
    arrays
        Arrays, and objects that move themselves, by the module of their framework.
    unmovable
        For each object that can't be moved: why, and what to do.
    there
        Objects that can't be moved, and are on the device already.
    unmoved
        Objects that have arrays and stay where they are, each with a reason, or without one.
    numpy
        NumPy's arrays that stay as they are.
    shared
        The numbers of variables before it, counted from 1, that hold some of the same objects.

    """

    arrays: dict[str, list[Any]]
    unmovable: list[str]
    there: list[Any]
    unmoved: list[tuple[Any, str]]
    numpy: list[Any]
    shared: set[int]


class Change(NamedTuple):
    """New components for an object that stays the same one."""

    components: Components
    new: Sequence[Any]

    def make(self) -> None:
        if self.components.put:
            self.components.put(self.components.children, self.new)

    def undo(self) -> None:
        if self.components.put:
            self.components.put(self.new, self.components.children)


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
        self._count = 0  # of variables
        self._before = 0  # the number of objects that were known before the last variable
        # All by the object's id.
        self._first: dict[int, int] = {}  # the number of the variable that it was found in
        self._components: dict[int, Components] = {}
        self._arrays: dict[int, Any] = {}
        self._data: set[int] = set()  # objects of another package, which can remember their device
        self._current: dict[int, Any] = {}  # what takes the place of an object, since `rebuild`

    def add(self, variable: Any) -> Found:
        """Find all that a variable leads to."""
        found = Found({}, [], [], [], [], set())
        self._count += 1
        self._before = len(self._walker.visited)
        first, number = self._first, self._count
        for obj, node, components in self._walker.walk([variable]):
            key = id(obj)
            if node.kind == "visited":
                if key in self._components or key in self._arrays:
                    found.shared.add(first[key])
                continue
            first[key] = number
            if components is not None:
                self._components[key] = components
            if node.kind == "data":
                self._data.add(key)
            elif node.kind != "composite":
                self._add_leaf(obj, node, found)
        found.shared.discard(number)
        return found

    def drop_last(self) -> None:
        """Forget the last variable, with all that no variable before it leads to."""
        self._count -= 1
        for key in self._walker.forget_after(self._before):
            for table in (self._first, self._components, self._arrays):
                table.pop(key, None)
            self._data.discard(key)

    def _add_leaf(self, obj: Any, node: Node, found: Found) -> None:
        """Sort in an array, or what can't be moved."""
        if node.framework is not None:
            self._add_array(obj, node.framework.module, found)
        elif node.kind == "numpy":
            if self._converts is not None and _is_convertible(obj):
                self._add_array(obj, self._converts, found)
            elif obj.dtype != object:
                found.numpy.append(obj)
        elif node.kind == "unmovable":
            devices = {holding.device for holding in holdings_of([obj]).values()}
            if devices and all(is_same_device(device, self._device) for device in devices):
                found.there.append(obj)
            else:
                found.unmovable.append(node.reason)
        elif node.kind == "unmoved":
            found.unmoved.append((obj, node.reason))

    def _add_array(self, array: Any, module: str, found: Found) -> None:
        self._arrays[id(array)] = array
        found.arrays.setdefault(module, []).append(array)

    def rebuild(self, replacement: Callable[[Any], Any]) -> list[Change]:
        """Build anew the objects that hold a replaced array and can't be changed.

        Parameters
        ----------
        replacement
            Returns the array that takes the place of another; itself where it stays.

        Returns
        -------
        list
            The changes to make to the objects that hold something replaced and can be changed.

        Raises
        ------
        PlacementError
            Objects that can't be changed hold each other in a cycle.

        """
        replaced = ((key, array, replacement(array)) for key, array in self._arrays.items())
        self._current = {key: new for key, array, new in replaced if new is not array}
        if not self._current:
            return []
        affected = self._holders_of(self._current)
        anew = {key for key in affected if not self._components[key].in_place}
        for key in self._inner_first(anew):
            components = self._components[key]
            if components.put is not None:
                self._current[key] = components.put(components.children, self._now_of(key))
        return [Change(self._components[key], self._now_of(key)) for key in affected - anew]

    def arrays(self) -> Iterable[Any]:
        """Return all arrays, and objects that move themselves."""
        return self._arrays.values()

    def unchanged_arrays(self) -> set[int]:
        """Return the ids of the arrays that no other has taken the place of."""
        return self._arrays.keys() - self._current.keys()

    def composites(self) -> Iterator[Any]:
        """Return all objects that are made of other objects."""
        return (self._walker.visited[key] for key in self._components)

    def now(self, obj: Any) -> Any:
        """Return what takes the place of an object since `rebuild`; the object itself where it stays."""
        return self._current.get(id(obj), obj)

    def _now_of(self, key: int) -> list[Any]:
        """Return what an object's components are now; where it is data, its device is the new one as well."""
        children = self._components[key].children
        if key not in self._data:
            return [self.now(child) for child in children]
        return [device_like(child, self._device) or self.now(child) for child in children]

    def _holders_of(self, replaced: Collection[int]) -> set[int]:
        """Return the objects that hold a replaced one, or one that has to be built anew because of that."""
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

    def _inner_first(self, keys: set[int]) -> Iterator[int]:
        """Return objects in an order in which each comes after those that it holds."""
        held = {key: {id(child) for child in self._components[key].children} & keys for key in keys}
        try:
            yield from TopologicalSorter(held).static_order()
        except CycleError as error:
            name = with_article(type(self._walker.visited[error.args[1][0]]).__name__, "A")
            raise PlacementError(
                f"{name} that can't be changed holds itself, and can't be built anew."
            ) from None


def _is_convertible(array: Any) -> bool:
    """Return whether an array is nothing more, as a mask or units would be lost, and of a numeric dtype."""
    numpy: Any = sys.modules["numpy"]
    return type(array) in (numpy.ndarray, numpy.memmap) and array.dtype.kind in _NUMERIC
