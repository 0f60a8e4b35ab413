"""The one walker over objects: what values lead to, for `%where`, `%gpu_free` and `%to_gpu`."""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from weakref import ReferenceType

from gpu_magic.errors import PlacementError, warn_once
from gpu_magic.frameworks import imported
from gpu_magic.objects import pytorch
from gpu_magic.objects.parts import (
    PLAIN,
    attributes_of,
    class_of,
    items_of,
    parts_of_error,
    stored_attributes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpu_magic.frameworks.answers import Components
    from gpu_magic.frameworks.base import Framework
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["Budget", "Node", "Walker", "collection_paused", "tensors_in"]

# What may be spent on variables that nobody has named.
_OBJECTS, _SECONDS = 200_000, 1.0
_PART = 4  # a variable may take a quarter of what is left, so that those after it get something
_BETWEEN = 256  # objects between two looks at the clock
_FEW = 16  # children that are all walked, as that takes less time than to sort plain values out
_DEPTH = 3  # levels of containers that are looked through at once
_INSIDE = 2_000  # objects that are looked at in one of another package that is to be moved
_CONTAINERS = (dict, list, set, frozenset, deque)  # which are never a framework's own
# Types whose objects lead to no array, or to those of everybody.
_ENDS = (*PLAIN, FunctionType, BuiltinFunctionType, MethodType, BaseException, ModuleType, ReferenceType)
# Packages whose objects lead to the user's variables, and are not theirs.
_SHELLS = frozenset(("IPython", "ipykernel", "traitlets", "gpu_magic"))
# Types without attributes that are plain values; others can stand for anything: a lock, a file, a stream.
_VALUES = ("slice", "range", "ellipsis", "bytearray", "mappingproxy")
_VALUES_OF = ("datetime", "decimal", "fractions", "pathlib", "uuid", "numpy")
_VALUES_OF_TORCH = ("device", "dtype", "layout", "memory_format")


class Budget:
    """How many objects, and how many seconds, may be spent on several variables, one after the other.

    >>> budget = Budget()
    >>> with budget.variable("data"):
    ...     found = holdings_of([data], budget)
    >>> budget.unfinished  # the variables that hold more than was looked at
    ['data']
    """

    def __init__(self, objects: int = _OBJECTS, seconds: float = _SECONDS) -> None:
        self._objects, self._seconds = objects, seconds
        self._name, self._left, self._next_look, self._end = "", 0, 0, 0.0  # of the present variable
        self.unfinished: list[str] = []

    @contextlib.contextmanager
    def variable(self, name: str) -> Iterator[None]:
        """Look at one variable in a block."""
        begin = time.monotonic()
        self._name, self._left = name, max(self._objects // _PART, _BETWEEN)
        self._end, self._next_look = begin + self._seconds / _PART, self._left - _BETWEEN
        self._objects -= self._left
        try:
            yield
        finally:
            self._objects += max(0, self._left)
            self._seconds -= time.monotonic() - begin

    def allows(self, objects: int = 1) -> bool:
        """Return whether that many more objects may be looked at, and count them."""
        self._left -= objects
        if self._left > self._next_look:
            return True
        self._next_look = self._left - _BETWEEN
        if self._left >= 0 and time.monotonic() < self._end:
            return True
        if self._name not in self.unfinished:
            self.unfinished.append(self._name)
        return False


class Node(NamedTuple):
    """What an object is.

    "array" is a framework's, "data" an object of another package that holds others, "visited" one that the
    walker has found before. Only for a move, "self-moving" has arrays that its own method `to` moves, an
    "unmovable" one is refused by a framework, and an "unmoved" one has arrays and stays where it is.
    """

    kind: Literal["array", "numpy", "composite", "data", "visited", "self-moving", "unmovable", "unmoved"]
    framework: Framework | None = None  # of an array, of a self-moving object's arrays, or of a model
    reason: str = ""  # why it stays, and what to do: a sentence, or empty


_VISITED, _NUMPY, _COMPOSITE, _DATA = Node("visited"), Node("numpy"), Node("composite"), Node("data")
_Read = tuple[Node | None, "Components | None"]
_NOTHING: _Read = (None, None)
_Reader = Callable[["Walker", Any], _Read]


class Walker:
    """Walks through objects to any depth, through cycles as well, and changes nothing.

    How objects of a type are read is found out once for each type. What leads to no array is passed over.

    Parameters
    ----------
    device
        Where the objects are to be moved: parts are those that have to be there, sparse arrays are taken
        apart, and what can't be moved is found. None: the objects are only looked at.
    budget
        How many objects may be looked at. None: all of them.

    Attributes
    ----------
    visited
        The objects that were found, by id. They are kept, so that no two have the same id.
    has_more
        Whether it has passed over objects that can stand for anything: a lock, a file, a stream.

    """

    def __init__(self, device: LogicalDevice | None = None, budget: Budget | None = None) -> None:
        self.visited: dict[int, Any] = {}
        self.device, self.budget = device, budget
        self._frameworks = imported()
        self._readers: dict[type, _Reader | None] = {}  # no bound methods: no cycle keeps objects
        self._plain: set[type] = set(PLAIN)
        self._namespace = vars(sys.modules["__main__"])
        self.has_more = self._is_namespace_given = False

    def walk(self, roots: Iterable[Any]) -> Iterator[tuple[Any, Node, Components | None]]:
        """Yield each object that can be reached, what it is, and what it holds.

        Raises
        ------
        PlacementError
            A framework refuses to move an object.

        """
        pending = list(roots)
        self._is_namespace_given = any(root is self._namespace for root in pending)
        while pending and (self.budget is None or self.budget.allows()):
            obj = pending.pop()
            if id(obj) in self.visited:
                yield obj, _VISITED, None
                continue
            try:
                node, components = self._read(obj)
            except Exception as error:  # an object can raise whatever it likes, and must not hide others
                if isinstance(error, PlacementError) and self.device is not None:
                    raise
                self.visited[id(obj)] = obj
                kind = type.__repr__(type(obj))
                why = f"can't be looked into ({type(error).__name__}): what such objects hold is left out."
                warn_once(kind, f"{kind} {why}")
                continue
            if node is None:
                continue
            self.visited[id(obj)] = obj
            yield obj, node, components
            if components is not None:
                pending += self._without_plain(components.children)

    def forget_after(self, count: int) -> list[int]:
        """Forget the objects that were found after the first `count`; return their ids."""
        ids = list(islice(self.visited, count, None))
        for key in ids:
            del self.visited[key]
        return ids

    def _without_plain(self, values: Sequence[Any]) -> Sequence[Any]:
        """Leave out plain values and rows of them, which are most of what notebooks hold."""
        if len(values) < _FEW:
            return values
        try:
            if self._plain.issuperset(map(type, values)):
                return ()
            return [value for value in values if not self._is_plain(value)]
        except Exception:  # noqa: BLE001 - a type of the user's can refuse to be compared
            return values

    def _is_plain(self, value: Any, depth: int = _DEPTH) -> bool:
        """Return whether a value is plain, or a container that holds plain ones down to some levels."""
        cls, plain = type(value), self._plain
        if cls in plain:
            return True
        if cls is not tuple and cls not in _CONTAINERS:
            return False
        return all(
            plain.issuperset(map(type, values))
            or (depth > 0 and all(self._is_plain(one, depth - 1) for one in values))
            for values in ((value, value.values()) if cls is dict else (value,))
        )

    def _read(self, obj: Any) -> _Read:
        cls = type(obj)
        if cls not in self._readers:
            self._readers[cls] = self._reader(obj, cls)
            if self._readers[cls] is None:
                self._plain.add(cls)
        read = self._readers[cls]
        # What leads to the user's variables does not hold them.
        is_users = obj is self._namespace and not self._is_namespace_given
        return _NOTHING if read is None or is_users else read(self, obj)

    def _reader(self, obj: Any, cls: type) -> _Reader | None:
        """Return what reads objects of a type; None if they lead to no array."""
        if issubclass(cls, PLAIN):
            return None
        if self.device is not None and (node := self._refusal(cls)) is not None:
            return lambda _, obj: (node, None)  # noqa: ARG005
        owner = next((framework for framework in self._frameworks if framework.is_array(cls)), None)
        if owner is not None:
            return partial(_read_array, Node("array", owner), owner)
        if issubclass(cls, _CONTAINERS):
            return lambda _, obj: (_COMPOSITE, items_of(obj, cls))
        if self.device is None and issubclass(cls, BaseException):
            return lambda _, obj: (_COMPOSITE, parts_of_error(obj))
        for framework in self._frameworks:
            found = self.parts(framework, obj)
            # The user's own objects are changed in place, though JAX could build a pytree again.
            if found is not None and (found.in_place or not class_of(cls).can_change):
                node = Node("composite", framework if found.in_place else None)
                return partial(_read_known, node, framework)
        numpy = sys.modules.get("numpy")
        if numpy is not None and issubclass(cls, numpy.ndarray):
            return lambda _, obj: (_NUMPY, items_of(obj, cls) or attributes_of(obj, cls))
        if (items_of(obj, cls) or attributes_of(obj, cls)) is not None:
            return lambda _, obj: (_COMPOSITE, items_of(obj, cls) or attributes_of(obj, cls))
        return self._library_reader(cls)

    def _refusal(self, cls: type) -> Node | None:
        """Return what objects of a type are that a framework does not move."""
        for framework in self._frameworks:
            if reason := framework.unmovable(cls):
                return Node("unmovable", reason=reason)
            if framework.module == "torch" and (reason := pytorch.why_it_stays(cls)):
                return Node("unmoved", reason=reason)
        return None

    def parts(self, framework: Framework, obj: Any) -> Components | None:
        """Return what an object of a framework holds; None for any other object."""
        if framework.module == "torch":
            return pytorch.parts_of(obj, self.device)
        return framework.components(obj)

    def _library_reader(self, cls: type) -> _Reader | None:
        """Return what reads objects of another package's class (a pipeline, a cache).

        Python's own lead anywhere (a logger to all loggers). What a framework does not say of its own
        objects, nobody else knows.
        """
        package = cls.__module__.partition(".")[0]
        is_closed = (
            not cls.__dictoffset__
            or issubclass(cls, _ENDS)
            or package in sys.stdlib_module_names
            or package in _SHELLS
            or any(package == framework.module for framework in self._frameworks)
        )
        if is_closed:
            values = _VALUES_OF_TORCH if package == "torch" else _VALUES
            is_value = issubclass(cls, _ENDS) or package in _VALUES_OF or cls.__name__ in values
            self.has_more = self.has_more or not is_value
        has_to = self.device is not None and hasattr(cls, "to")
        if is_closed and not has_to:
            return None
        if self.device is None:
            return lambda _, obj: (_DATA, stored_attributes(obj, cls))
        return partial(_read_to_move, is_closed)


def _read_known(node: Node, framework: Framework, walker: Walker, obj: Any) -> _Read:
    """Return an object of a framework: a model, an optimizer."""
    return node, walker.parts(framework, obj)


def _read_array(node: Node, framework: Framework, walker: Walker, obj: Any) -> _Read:
    """Return an array; a sparse one that is to be moved is made of others."""
    components = None if walker.device is None else walker.parts(framework, obj)
    return (node if components is None else _COMPOSITE), components


def _read_to_move(is_closed: bool, walker: Walker, obj: Any) -> _Read:
    """Return what another package's object is that is to be moved.

    If arrays and plain values are all that it holds, its attributes are moved. A model or an optimizer in
    it shows that it is more than data: it may have a device of its own, where it puts what it is given.
    """
    budget = Budget(_INSIDE * _PART, float("inf"))
    inner = Walker(budget=budget)
    with budget.variable("inside"):
        nodes = [(node, type(one)) for one, node, _ in inner.walk([getattr(obj, "__dict__", {})])]
    if walker.budget is not None:
        walker.budget.allows(len(nodes))
    arrays = [node for node, _ in nodes if node.kind == "array"]
    has_to = callable(getattr(type(obj), "to", None))
    own = next((node for node in arrays if node.framework and node.framework.module == "torch"), None)
    if has_to and own is not None:
        return Node("self-moving", own.framework), None
    if is_closed or not arrays:
        return _NOTHING
    is_more = (
        (node.kind == "composite" and node.framework) or (node.kind == "data" and hasattr(cls, "to"))
        for node, cls in nodes
    )
    is_data = not (has_to or inner.has_more or budget.unfinished or any(is_more))
    return (_DATA, stored_attributes(obj, type(obj))) if is_data else (Node("unmoved"), None)


def tensors_in(obj: Any) -> list[Any]:
    """Return PyTorch's tensors that an object of another package holds."""
    found = Walker().walk([getattr(obj, "__dict__", {})])
    return [
        one
        for one, node, _ in found
        if node.kind == "array" and node.framework is not None and node.framework.module == "torch"
    ]


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Pause the garbage collector around what makes many objects: each run would look at all of them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
