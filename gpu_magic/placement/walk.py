"""Walks through all objects that values lead to, and finds out what each is: an array, or made of others."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks import imported
from gpu_magic.placement.components import COMMON, PLAIN, attributes_of, can_change, items_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpu_magic.frameworks.base import Components, Framework
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["Node", "Walker"]

NodeKind = Literal["array", "numpy", "composite", "self-moving", "unmovable", "visited"]


class Node(NamedTuple):
    """What an object is.

    Parameters
    ----------
    kind
        "array": of a framework; "numpy": an array of NumPy, with components if it is one of objects;
        "composite": made of other objects; "self-moving": has arrays out of our sight, and a method that
        moves them; "unmovable": a framework says why; "visited": the walker has been there.
    framework
        The framework of an array, or of the arrays that a self-moving object has; else None.
    reason
        Why an unmovable object can't be moved, and what to do: a sentence.

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
_COMPOSITE = Node("composite")
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

    Attributes
    ----------
    visited
        The objects that were found, by id. They are kept, so that no two have the same id.

    """

    def __init__(self, device: LogicalDevice | None = None) -> None:
        self.visited: dict[int, Any] = {}
        self._device = device
        self._frameworks = imported()
        self._types: dict[type, _TypeInfo] = {}

    def walk(self, roots: Iterable[Any]) -> Iterator[tuple[Any, Node, Components | None]]:
        """Yield each object that can be reached, what it is, and what it is made of.

        Raises
        ------
        PlacementError
            A framework refuses to move an object.

        """
        visited = self.visited
        pending = list(roots)
        while pending:
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
                continue
            if node is None:
                continue
            visited[key] = obj
            yield obj, node, components
            if components is not None:
                pending += components.children

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
        components = self._framework_components(obj, cls)
        if components is not None:
            return _COMPOSITE, components
        components = items_of(obj, cls) or attributes_of(obj, cls)
        if info is _NUMPY:
            return info.node, components
        return (self._mover(obj, cls), None) if components is None else (_COMPOSITE, components)

    def _read_type(self, cls: type) -> _TypeInfo:
        """Find out what can be known of objects from their type."""
        if issubclass(cls, PLAIN):
            return _OPAQUE
        is_to_move = self._device is not None
        if is_to_move:
            reason = next(filter(None, (framework.unmovable(cls) for framework in self._frameworks)), "")
            if reason:
                return _TypeInfo(Node("unmovable", reason=reason), is_final=True)
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

    def _mover(self, obj: Any, cls: type) -> Node | None:
        """Return a node if an object moves itself. If it can't, no object of its type is looked at again."""
        if self._device is None or not hasattr(cls, "to"):
            self._types[cls] = _OPAQUE
            return None
        mover = next((framework for framework in self._frameworks if framework.moves_itself(obj)), None)
        return None if mover is None else Node("self-moving", mover)
