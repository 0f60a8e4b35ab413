"""Walks through all objects that values lead to, and finds out what each is: an array, or made of others."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gpu_magic.errors import PlacementError, warn_once
from gpu_magic.frameworks import imported
from gpu_magic.frameworks.answers import Components
from gpu_magic.placement.components import (
    COMMON,
    PLAIN,
    attributes_of,
    can_change,
    items_of,
    stored_attributes,
)
from gpu_magic.placement.library_objects import is_opaque, look_inside
from gpu_magic.placement.plain import PlainValues
from gpu_magic.placement.tracebacks import components_of_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpu_magic.frameworks.base import Framework
    from gpu_magic.placement.budget import Budget
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["Node", "Walker"]

NodeKind = Literal["array", "numpy", "composite", "data", "self-moving", "unmovable", "unmoved", "visited"]


class Node(NamedTuple):
    """What an object is.

    Parameters
    ----------
    kind
        "array": of a framework; "numpy": an array of NumPy, with components if it is one of objects;
        "composite": made of other objects; "data": likewise, of another package's class, and no more than
        that; "self-moving": has arrays out of our sight, and a method that moves them; "unmovable": a
        framework says why; "unmoved": has arrays and stays where it is; "visited": the walker has been there.
    framework
        The framework of an array, or of the arrays that a self-moving object has; else None.
    reason
        Why an object is unmovable or left, and what to do: a sentence. Empty where it is left because nothing
        is known of it.

    """

    kind: NodeKind
    framework: Framework | None = None
    reason: str = ""


class _TypeInfo(NamedTuple):
    """What is known of all objects of a type.

    Parameters
    ----------
    node
        What they are; None for opaque ones.
    is_final
        Whether that is all. If not, each object is asked for its components.

    """

    node: Node | None
    is_final: bool


_VISITED = Node("visited")
_COMPOSITE, _DATA, _UNMOVED = Node("composite"), Node("data"), Node("unmoved")
_CONTAINER = _TypeInfo(_COMPOSITE, is_final=False)
_NUMPY = _TypeInfo(Node("numpy"), is_final=False)
_OTHER = _TypeInfo(None, is_final=False)
_OPAQUE = _TypeInfo(None, is_final=True)


class Walker:
    """Walks through objects to any depth, through cycles as well. It reads, and changes nothing.

    What can be known from an object's type is found out once for each type. Opaque objects, which are none of
    the kinds of `Node`, are passed over.

    Parameters
    ----------
    device
        The device that the objects are to be moved to: components are those that have to be there, arrays
        made of other arrays (sparse ones) are taken apart, and what can't be moved is found. None: the
        objects are only looked at.
    budget
        How many objects may be looked at. None: all of them.

    Attributes
    ----------
    visited
        The objects that were found, by id. They are kept, so that no two have the same id.

    """

    def __init__(self, device: LogicalDevice | None = None, budget: Budget | None = None) -> None:
        self.visited: dict[int, Any] = {}
        self._device, self._budget = device, budget
        self._plain = PlainValues()
        self._frameworks = imported()
        self._types: dict[type, _TypeInfo] = {}

    def walk(self, roots: Iterable[Any]) -> Iterator[tuple[Any, Node, Components | None]]:
        """Yield each object that can be reached, what it is, and what it is made of.

        Raises
        ------
        PlacementError
            A framework refuses to move an object.

        """
        visited, budget = self.visited, self._budget
        pending = list(roots)
        while pending:
            if budget is not None and not budget.allows():
                return
            obj = pending.pop()
            key = id(obj)
            if key in visited:
                yield obj, _VISITED, None
                continue
            try:
                node, components = self._read(obj)
            except Exception as error:  # an object can raise whatever it likes, and must not hide others
                if isinstance(error, PlacementError) and self._device is not None:
                    raise
                visited[key] = obj
                kind = type.__repr__(type(obj))
                why = f"can't be looked into ({type(error).__name__}): what such objects hold is left out."
                warn_once(kind, f"{kind} {why}")
                continue
            if node is None:
                continue
            visited[key] = obj
            yield obj, node, components
            if components is not None:
                pending += self._without_plain(components.children)

    def forget_after(self, count: int) -> list[int]:
        """Forget the objects that were found after the first so many; return their ids."""
        ids = list(islice(self.visited, count, None))
        for key in ids:
            del self.visited[key]
        return ids

    def _without_plain(self, values: Sequence[Any]) -> Sequence[Any]:
        try:
            return self._plain.without(values)
        except Exception:  # noqa: BLE001 - a type of the user's can refuse to be compared
            return values

    def _read(self, obj: Any) -> tuple[Node | None, Components | None]:
        """Return what an object is, None for an opaque one; and what it is made of."""
        cls = type(obj)
        info = self._types.get(cls)
        if info is None:
            info = self._types[cls] = self._read_type(cls)
        if info.is_final:
            return info.node, None
        if info is _CONTAINER:
            return _COMPOSITE, items_of(obj, cls)
        if info.node is not None and info.node.framework is not None:
            # An array that is to be moved: a sparse one is made of others.
            components = info.node.framework.components(obj, self._device)
            return (info.node if components is None else _COMPOSITE), components
        if self._device is None and issubclass(cls, BaseException):
            return _COMPOSITE, components_of_error(obj)
        components = self._framework_components(obj, cls)
        if components is not None:
            return _COMPOSITE, components
        components = items_of(obj, cls) or attributes_of(obj, cls)
        if info is _NUMPY:
            return info.node, components
        if components is not None:
            return _COMPOSITE, components
        return self._read_library_object(obj, cls)

    def _read_type(self, cls: type) -> _TypeInfo:
        """Find out what can be known of objects from their type."""
        if issubclass(cls, PLAIN):
            self._plain.types.add(cls)
            return _OPAQUE
        is_to_move = self._device is not None
        if is_to_move:
            reason = next(filter(None, (framework.unmovable(cls) for framework in self._frameworks)), "")
            if reason:
                return _TypeInfo(Node("unmovable", reason=reason), is_final=True)
            reason = next(filter(None, (framework.stays(cls) for framework in self._frameworks)), "")
            if reason:
                return _TypeInfo(Node("unmoved", reason=reason), is_final=True)
        owner = next((framework for framework in self._frameworks if framework.is_array(cls)), None)
        if owner is not None:
            return _TypeInfo(Node("array", owner), is_final=not is_to_move)
        if issubclass(cls, COMMON):
            return _CONTAINER
        numpy = sys.modules.get("numpy")
        return _NUMPY if numpy is not None and issubclass(cls, numpy.ndarray) else _OTHER

    def _framework_components(self, obj: Any, cls: type) -> Components | None:
        """Return what an object of a framework (a model, an optimizer) is made of; None for others.

        The user's own objects are changed in place where they can be, though a framework (JAX, for a pytree)
        could build them anew.
        """
        for framework in self._frameworks:
            components = framework.components(obj, self._device)
            if components is not None and (components.in_place or not can_change(cls)):
                return components
        return None

    def _read_library_object(self, obj: Any, cls: type) -> tuple[Node | None, Components | None]:
        """Return what an object of another package's class is: opaque, where it leads to no array.

        If a type's objects can't lead to one, none of them is looked at again.
        """
        is_closed = is_opaque(cls, self._frameworks)
        if is_closed and not hasattr(cls, "to"):
            self._types[cls] = _OPAQUE
            self._plain.types.add(cls)
            return None, None
        if self._device is not None and hasattr(cls, "to"):
            mover = next((framework for framework in self._frameworks if framework.moves_itself(obj)), None)
            if mover is not None:
                return Node("self-moving", mover), None
        if is_closed:
            return None, None
        inside = look_inside(obj, self._frameworks)
        if self._budget is not None:
            self._budget.allows(inside.looked_at)
        if not inside.arrays:
            self.visited[id(obj)] = obj
            return None, None
        if self._device is None:
            return _COMPOSITE, Components(inside.arrays)
        return (_DATA, stored_attributes(obj, cls)) if inside.is_data else (_UNMOVED, None)
