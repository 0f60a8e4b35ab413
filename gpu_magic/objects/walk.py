"""The walker through objects that `%where`, `%gpu_free` and `%to_gpu` share."""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gpu_magic.errors import warn_once
from gpu_magic.frameworks import imported
from gpu_magic.objects.parts import (
    PLAIN,
    class_of,
    keeps,
    kept_by,
    parts_of,
    parts_of_error,
    parts_of_torch,
    stored_attributes,
)
from gpu_magic.text import with_article

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpu_magic.frameworks.base import Components, Framework
    from gpu_magic.frameworks.target import LogicalDevice

__all__ = ["Budget", "Node", "Walker", "collection_paused", "tensors_in", "warn_of_unread"]

_PART = 4  # a variable may use a quarter of the rest, so that later variables get some
_SMALL = 256  # objects of each variable that are always searched
_LARGE = 5_000  # objects in a container that are looked at before the time is checked
_DEPTH = 3  # levels of containers of plain values to skip at once
_INSIDE = 2_000  # objects to search in an object of another package, for a move
_CONTAINERS = (dict, list, set, frozenset, deque)  # never a framework's own types
_SHELLS = frozenset(("IPython", "ipykernel", "traitlets", "gpu_magic"))
# Packages and types of plain values. Another closed type can be anything: a lock, a file, a stream.
_VALUES = {"builtins", "datetime", "decimal", "fractions", "pathlib", "uuid", "weakref", "numpy"}
_VALUES |= {f"torch.{name}" for name in ("device", "dtype", "layout", "memory_format")}


class Budget:
    """The most objects and seconds for a search through several variables, one after the other.

    `unfinished` has the names of the variables that were not searched in full.
    """

    def __init__(self, objects: int = 200_000, seconds: float = 1.0) -> None:
        self._objects, self._seconds = objects, seconds
        # Of the present variable
        self._name, self._count, self._most, self._end = "", 0, objects, time.monotonic() + seconds
        self.unfinished: list[str] = []

    @contextlib.contextmanager
    def variable(self, name: str) -> Iterator[None]:
        """Search one variable in the block."""
        begin = time.monotonic()
        self._name, self._count = name, 0
        self._most, self._end = self._objects // _PART, begin + self._seconds / _PART
        try:
            yield
        finally:
            self._objects -= self._count
            self._seconds -= time.monotonic() - begin

    def allows(self, objects: int = 1) -> bool:
        """Count objects, and return whether the search may continue with them."""
        self._count += objects
        return self._count <= _SMALL or (self.has_time() if self._count <= self._most else self._stop())

    def has_time(self) -> bool:
        """Return whether there is time to search the variable further."""
        return time.monotonic() < self._end or self._stop()

    def _stop(self) -> bool:
        if self._name not in self.unfinished:
            self.unfinished.append(self._name)
        return False


class Node(NamedTuple):
    """The kind of an object.

    "array" is a framework's array, "data" an object of another package that holds objects, and "visited" an
    object that the walker has found before. Only for a move: the own method `to` of a "self-moving" object
    moves its arrays. A framework refuses an "unmovable" object. An "unmoved" one has arrays, but stays.
    """

    kind: Literal["array", "numpy", "composite", "data", "visited", "self-moving", "unmovable", "unmoved"]
    framework: Framework | None = None  # of an array, of a self-moving object's arrays, or of a model
    reason: str = ""  # why the object stays, and what to do, as a sentence. Or empty


_VISITED, _NUMPY, _COMPOSITE, _DATA = Node("visited"), Node("numpy"), Node("composite"), Node("data")
_ANOTHERS = Node("unmoved")  # of another package, whose objects are searched one by one
_KEEPER = Node("unmoved")  # what it keeps is found, but cannot be replaced
_Read = tuple[Node | None, "Components | None"]
_Parts = Callable[[Any], "Components | None"]
_Type = tuple[Node | None, _Parts | None]  # the kind of a type's objects, and the function for their parts


class Walker:
    """Walks through objects to any depth, also through cycles, and changes nothing.

    `device` is the target of a move. With it, the parts are those to move, sparse arrays have parts, and the
    walker finds objects that cannot move. The walker skips objects that lead to no array. `visited` has the
    found objects by id, and keeps them, so that ids stay unique.
    """

    def __init__(self, device: LogicalDevice | None = None, budget: Budget | None = None) -> None:
        self.visited: dict[int, Any] = {}
        self.device, self.budget = device, budget
        self._has_more = False  # it has skipped objects that can be anything
        self.stays: set[int] = set()  # ids of objects that a found optimizer keeps on the CPU
        self._frameworks: dict[Framework, _Parts] = {one: one.components for one in imported()}
        if (torch := next(filter(_is_torch, self._frameworks), None)) is not None:
            self._frameworks[torch] = partial(parts_of_torch, to=device, stays=self.stays)
        self._types: dict[type, _Type] = {}  # no bound methods of the walker, so no cycle keeps objects
        self._plain: set[type] = set(PLAIN)
        self._skipped: Any = None  # the user's namespace: a reference to it does not hold the variables

    def walk(self, roots: Iterable[Any]) -> Iterator[tuple[Any, Node, Components | None]]:
        """Yield each object that can be reached, its kind, and its parts."""
        pending, namespace = list(roots), vars(sys.modules["__main__"])
        self._skipped = None if any(root is namespace for root in pending) else namespace
        while pending and (self.budget is None or self.budget.allows()):
            obj = pending.pop()
            if id(obj) in self.visited:
                yield obj, _VISITED, None
                continue
            try:
                node, components = self._read(obj)
            except Exception as error:  # noqa: BLE001 - an object can raise any error, and must not hide others
                self.visited[id(obj)] = obj
                warn_of_unread(obj, error)
                continue
            if node is None:
                continue
            self.visited[id(obj)] = obj
            yield obj, node, components
            children = () if components is None else components.children
            for begin in range(0, len(children), _LARGE):
                if begin and self.budget is not None and not self.budget.has_time():
                    break
                some = children[begin : begin + _LARGE]
                with contextlib.suppress(Exception):  # a user's type can raise an error in a comparison
                    some = [one for one in some if not self._is_plain(one)]
                pending += some

    def _is_plain(self, value: Any, depth: int = _DEPTH) -> bool:
        """Return whether a value is plain, or nested containers of plain values: most values in notebooks."""
        cls, plain = type(value), self._plain
        if cls in plain or (cls is OrderedDict and not value):  # a module has eleven for its hooks
            return True
        if not depth or (cls is not tuple and cls not in _CONTAINERS):
            return False
        values = [*value, *value.values()] if cls is dict else value
        if plain.issuperset(map(type, values)):
            return True
        return len(values) <= _LARGE and all(self._is_plain(one, depth - 1) for one in values)

    def _read(self, obj: Any) -> _Read:
        """Return the kind of an object, and its parts. The way to read them is found once per type."""
        cls = type(obj)
        if cls not in self._types:
            self._types[cls] = self._type_of(obj, cls)
            if self._types[cls][0] is None:
                self._plain.add(cls)
        node, parts = self._types[cls]
        if node is _ANOTHERS:
            return self._read_anothers(obj, cls, is_closed=parts is None)
        if node is None or obj is self._skipped or id(obj) in self.stays:
            return None, None
        components = None if parts is None else parts(obj)
        if node is _KEEPER:
            if self.device is None:
                return _COMPOSITE, components
            is_empty = components is None or all(map(self._is_plain, components.children))
            return (None if is_empty else node), None
        is_taken_apart = components is not None and node.kind == "array"  # a sparse array
        return (_COMPOSITE if is_taken_apart else node), components

    def _type_of(self, obj: Any, cls: type) -> _Type:  # noqa: C901, PLR0912 - one branch for each kind
        """Return the kind of a type's objects. No node if they lead to no array."""
        if issubclass(cls, PLAIN):
            return None, None
        frameworks = {} if issubclass(cls, _CONTAINERS) else self._frameworks
        for framework, parts in frameworks.items():
            if self.device is not None and (reason := framework.unmovable(cls)):
                return Node("unmovable", reason=reason), None
            if framework.is_array(cls):
                return Node("array", framework), None if self.device is None else parts
        if issubclass(cls, BaseException) and self.device is None:
            return _COMPOSITE, parts_of_error
        for framework, parts in frameworks.items():
            found = parts(obj)
            # Change the user's own objects in place, even if JAX can rebuild them as pytrees.
            if found is None or not (found.in_place or class_of(cls).is_frozen or not class_of(cls).is_users):
                continue
            if self.device is not None and found.put is None and _is_torch(framework):
                what = with_article(cls.__name__, "A")
                why = f"{what} stays on the CPU, where a DataLoader's workers read it. Move each batch."
                return Node("unmoved", reason=why), None
            return Node("composite", framework if found.in_place else None), parts
        numpy = sys.modules.get("numpy")
        if numpy is not None and issubclass(cls, numpy.ndarray):
            return _NUMPY, parts_of
        if parts_of(obj) is not None:
            return _COMPOSITE, parts_of
        if keeps(cls):
            return _KEEPER, kept_by
        # Do not search Python's own objects, which lead anywhere (a logger to all loggers), and shells, which
        # lead to the user's variables. Only a framework itself knows the parts of its objects.
        package, modules = cls.__module__.partition(".")[0], {one.module for one in self._frameworks}
        is_end = not cls.__dictoffset__ or issubclass(cls, ModuleType | BaseException)
        is_closed = is_end or package in modules | _SHELLS | sys.stdlib_module_names
        if is_closed and not {package, f"{cls.__module__}.{cls.__name__}"} & _VALUES:
            self._has_more = True
        read = None if is_closed else stored_attributes
        if self.device is not None and (hasattr(cls, "to") or read):
            return _ANOTHERS, read
        return _DATA if read else None, read

    def _read_anothers(self, obj: Any, cls: type, *, is_closed: bool) -> _Read:
        """Return the kind of an object of another package (a pipeline, a cache) for a move.

        If the object holds only arrays and plain values, its attributes move. If it holds a model or an
        optimizer, it is more than data. It may have its own device, to which it moves its inputs.
        """
        inner = Walker(budget=(budget := Budget(_INSIDE)))
        owners, is_more = list["Framework | None"](), False
        for one, node, _ in inner.walk([getattr(obj, "__dict__", {})]):
            if node.kind == "array":
                owners.append(node.framework)
            elif node.framework is not None or (node.kind == "data" and hasattr(type(one), "to")):
                is_more = True
        has_to = callable(getattr(cls, "to", None))
        if has_to and (torch := next(filter(_is_torch, owners), None)) is not None:
            return Node("self-moving", torch), None
        if is_closed or not owners:
            return None, None
        is_more = is_more or has_to or inner._has_more or bool(budget.unfinished)
        return (_ANOTHERS, None) if is_more else (_DATA, stored_attributes(obj))


def warn_of_unread(obj: object, error: Exception) -> None:
    """Warn, once for each type, that the arrays of an object are left out because it raised an error."""
    kind = type.__repr__(type(obj))
    why = f"cannot be searched ({type(error).__name__}), so what such objects hold is left out."
    warn_once(kind, f"{kind} {why}")


def tensors_in(obj: Any) -> list[Any]:
    """Return the PyTorch tensors that an object of another package holds."""
    found = Walker().walk([getattr(obj, "__dict__", {})])
    return [one for one, node, _ in found if node.kind == "array" and _is_torch(node.framework)]


def _is_torch(framework: Framework | None) -> bool:
    return framework is not None and framework.module == "torch"


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Pause the garbage collector while code creates many objects, because each run would visit them all."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
