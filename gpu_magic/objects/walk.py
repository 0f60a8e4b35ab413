"""The walker through objects that `%where`, `%gpu_free` and `%to_gpu` share."""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gpu_magic.errors import warn_once
from gpu_magic.frameworks import imported
from gpu_magic.objects.parts import (
    PLAIN,
    attributes_of_tensor,
    class_of,
    has_own_tables,
    is_holder,
    keeps,
    kept_by,
    parts_of,
    parts_of_error,
    parts_of_module,
    parts_of_tensor,
    parts_of_torch,
    stored_attributes,
)
from gpu_magic.text import with_article

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpu_magic.frameworks.base import Components, Framework
    from gpu_magic.frameworks.target import LogicalDevice

__all__ = ["Budget", "Node", "Walker", "collection_paused", "tensors_of", "warn_of_unread"]

_VARIABLE_SHARE = 4  # a variable may use a quarter of the rest, so that later variables get some
_ALWAYS_SEARCHED = 256  # objects of each variable
_CHUNK = 5_000  # objects in a container that are looked at before the time is checked
_PLAIN_LEVELS = 3  # of containers of plain values that are skipped at once
_MAX_FOREIGN = 2_000  # objects to search in an object of another package, for a move
_CONTAINERS = (dict, list, set, frozenset, deque)  # never a framework's own types
_MAYBE_PLAIN = frozenset((*_CONTAINERS, tuple, OrderedDict))
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
        self._begin: float | None = None
        self.unfinished: list[str] = []

    @contextlib.contextmanager
    def variable(self, name: str) -> Iterator[None]:
        """Search one variable in the block."""
        self._begin = begin = time.monotonic()
        self._name, self._count = name, 0
        self._most = self._objects // _VARIABLE_SHARE
        self._end = begin + self._seconds / _VARIABLE_SHARE
        try:
            yield
        finally:
            self.close()

    def close(self) -> None:
        """End the search of the present variable. What is done with it afterwards is free."""
        if self._begin is not None:
            self._objects -= self._count
            self._seconds -= time.monotonic() - self._begin
            self._begin = None

    def allows(self, objects: int = 1) -> bool:
        """Count objects, and return whether the search may continue with them."""
        self._count += objects
        if self._count <= _ALWAYS_SEARCHED:
            return True
        return self.has_time() if self._count <= self._most else self._stop()

    def has_time(self) -> bool:
        """Return whether there is time to search the variable further."""
        return time.monotonic() < self._end or self._stop()

    def _stop(self) -> bool:
        if self._name not in self.unfinished:
            self.unfinished.append(self._name)
        return False


class Node(NamedTuple):
    """The kind of an object.

    "data" is an object of another package that holds objects, and "visited" an object that the walker has
    found before. Only for a move: the own method `to` of a "self-moving" object moves its arrays. A framework
    refuses an "unmovable" object. An "unmoved" one has arrays, but stays.
    """

    kind: Literal["array", "composite", "data", "visited", "self-moving", "unmovable", "unmoved"]
    framework: Framework | None = None  # of an array (None: NumPy), of an object's own arrays, or of a model
    reason: str = ""  # why the object stays, and what to do, as a sentence. Or empty
    arrays: Sequence[Any] = ()  # of a self-moving object


_VISITED, _NUMPY, _COMPOSITE, _DATA = Node("visited"), Node("array"), Node("composite"), Node("data")
_FOREIGN = Node("unmoved")  # of another package, whose objects are searched one by one
_OWN_TO = Node("self-moving")  # a tensor with its own `to`
_KEEPER = Node("unmoved")  # what it keeps is found, but cannot be replaced
_ERROR = Node("unmoved", reason="An error keeps the variables of functions, which cannot be moved.")
_Read = tuple[Node | None, "Components | None"]
_Parts = Callable[[Any], "Components | None"]
_Type = tuple[Node | None, _Parts | None]  # the kind of a type's objects, and the function for their parts


class Walker:
    """Walks through objects to any depth, also through cycles, and changes nothing.

    It skips objects that lead to no array. If it `moves`, it finds what can move to `device`: it takes sparse
    arrays apart, and says which objects move themselves, cannot move, or stay. Else it finds all arrays.

    `visited` has all found objects by id, and keeps them, so that ids stay unique. `arrays` has each array
    with its framework, or with None if it is NumPy's. A `budget` limits the walk. With `searched_for`, the
    budget is only for the search of the first array for whose framework that is true.
    """

    def __init__(
        self, device: LogicalDevice | None = None, budget: Budget | None = None, *, moves: bool = False
    ) -> None:
        self.visited: dict[int, Any] = {}
        self.arrays: list[tuple[Any, Framework | None]] = []
        self.budget, self._moves = budget, moves
        self.searched_for: Callable[[Framework | None], bool] | None = None
        self._has_opaque = False  # it has skipped objects that can be anything
        self.stays: set[int] = set()  # ids of objects that a found optimizer keeps on the CPU
        self._frameworks: dict[Framework, _Parts] = {one: one.components for one in imported()}
        self._torch = next(filter(_is_torch, self._frameworks), None)
        if self._torch is not None:
            self._frameworks[self._torch] = partial(parts_of_torch, to=device, stays=self.stays)
        self._types: dict[type, _Type] = {}  # no bound methods of the walker, so no cycle keeps objects
        self._plain: set[type] = set(PLAIN)
        self._skipped: Any = None  # the user's namespace: a reference to it does not hold the variables
        self._roots: set[int] = set()  # ids of the objects that the walk is for

    def walk(  # noqa: C901 - one loop, in which each call would count
        self, roots: Iterable[Any]
    ) -> Iterator[tuple[Any, Node, Components | None]]:
        """Yield each object that can be reached, its kind and its parts. Leave out arrays without parts."""
        pending, visited, namespace = list(roots), self.visited, vars(sys.modules["__main__"])
        self._roots = set(map(id, pending))
        self._skipped = None if any(root is namespace for root in pending) else namespace
        torch: Any = None if self._torch is None else sys.modules["torch"]
        tensor, parameter, strided = (
            (torch.Tensor, torch.nn.Parameter, torch.strided) if torch else [None] * 3
        )
        while pending and (self.budget is None or self.budget.allows()):
            obj = pending.pop()
            key, cls = id(obj), type(obj)
            if key in visited:
                yield obj, _VISITED, None
                continue
            # Most arrays are of these types, so the way through `_read` is left out.
            if (cls is parameter or cls is tensor) and obj.layout is strided and key not in self.stays:
                visited[key] = obj
                self._keep(obj, self._torch)
                continue
            try:
                node, components = self._read(obj)
            except Exception as error:  # noqa: BLE001 - an object can raise any error, and must not hide others
                visited[key] = obj
                warn_of_unread(obj, error)
                continue
            if node is None:
                continue
            visited[key] = obj
            if node.kind == "array":
                self._keep(obj, node.framework)
                if components is None:
                    continue
            elif node.kind in {"self-moving", "unmovable"}:
                self._end_search(node.framework)
            yield obj, node, components
            children = () if components is None else components.children
            for begin in range(0, len(children), _CHUNK):
                if begin and self.budget is not None and not self.budget.has_time():
                    pending += children[begin:]  # in case that the search ends with an array
                    break
                pending += self._not_plain(children[begin : begin + _CHUNK])

    def _keep(self, array: Any, framework: Framework | None) -> None:
        self.arrays.append((array, framework))
        if self.budget is not None:
            self._end_search(framework)

    def _end_search(self, framework: Framework | None) -> None:
        """If the budget was for the search of the first array of a framework, search the rest in full."""
        if self.budget is not None and self.searched_for is not None and self.searched_for(framework):
            self.budget.close()
            self.budget = None

    def _not_plain(self, values: Sequence[Any]) -> list[Any]:
        """Return the values that can lead to arrays: few in most objects."""
        plain = self._plain
        try:
            return [
                one
                for one in values
                if (cls := type(one)) not in plain and (cls not in _MAYBE_PLAIN or not self._is_plain(one))
            ]
        except Exception:  # noqa: BLE001 - a user's type can raise any error in a comparison
            return list(values)

    def _is_plain(self, value: Any, levels: int = _PLAIN_LEVELS) -> bool:
        """Return whether a value is plain, or nested containers of plain values: most values in notebooks."""
        cls, plain = type(value), self._plain
        if cls in plain or (cls is OrderedDict and not value):  # a module has eleven for its hooks
            return True
        if not levels or (cls is not tuple and cls not in _CONTAINERS):
            return False
        values = [*value, *value.values()] if cls is dict else value
        if plain.issuperset(map(type, values)):
            return True
        return len(values) <= _CHUNK and all(self._is_plain(one, levels - 1) for one in values)

    def _read(self, obj: Any) -> _Read:
        """Return the kind of an object, and its parts. The way to read them is found once per type."""
        cls = type(obj)
        if (known := self._types.get(cls)) is None:
            known = self._types[cls] = self._type_of(obj, cls)
            if known[0] is None:
                self._plain.add(cls)
        node, parts = known
        is_left_out = obj is self._skipped or id(obj) in self.stays
        if node is None or is_left_out or (id(obj) not in self._roots and _is_of_process(obj, node)):
            return None, None
        if node is _FOREIGN:
            return self._read_foreign(obj, cls, is_closed=parts is None)
        reason = ""
        if node is _OWN_TO:
            return Node("self-moving", self._torch, arrays=tensors_of(obj)), None
        if self._moves and node.kind == "composite" and node.framework is not None:
            reason = node.framework.bound(obj)
        if reason:
            return Node("unmovable", node.framework, reason), None
        components = None if parts is None else parts(obj)
        if node is _KEEPER:
            if not self._moves:
                return _COMPOSITE, components
            is_empty = components is None or not self._not_plain(components.children)
            return (None if is_empty else node), None
        is_sparse = self._moves and components is not None and node.kind == "array" and node is not _NUMPY
        return (_COMPOSITE if is_sparse else node), components

    def _type_of(self, obj: Any, cls: type) -> _Type:  # noqa: C901, PLR0912 - one branch for each kind
        """Return the kind of a type's objects. No node if they lead to no array."""
        if issubclass(cls, PLAIN):
            return None, None
        frameworks = {} if issubclass(cls, _CONTAINERS) else self._frameworks
        for framework in frameworks:
            if self._moves and (reason := framework.unmovable(cls)):
                return Node("unmovable", reason=reason), None
            if framework.is_array(cls):
                return self._type_of_array(framework, cls)
        if issubclass(cls, BaseException) and not self._moves:
            return _COMPOSITE, parts_of_error
        for framework, parts in frameworks.items():
            found = parts(obj)
            # Change the user's own objects in place, even if JAX can rebuild them as pytrees.
            can_rebuild = class_of(cls).is_frozen or not class_of(cls).is_user_code
            if found is None or not (found.in_place or can_rebuild):
                continue
            if self._moves and found.put is None and _is_torch(framework):
                what = with_article(cls.__name__, "A")
                why = f"{what} stays on the CPU, where a DataLoader's workers read it. Move each batch."
                return Node("unmoved", reason=why), None
            node = Node("composite", framework if found.in_place else None)
            return node, parts_of_module if _is_torch(framework) and has_own_tables(cls) else parts
        numpy = sys.modules.get("numpy")
        if numpy is not None and issubclass(cls, numpy.ndarray):
            return _NUMPY, parts_of
        if parts_of(obj) is not None:
            return _COMPOSITE, parts_of
        if keeps(cls):
            self._has_opaque = self._has_opaque or is_holder(cls)
            return _KEEPER, kept_by
        if issubclass(cls, BaseException):
            return _ERROR, None
        # Do not search Python's own objects, which lead anywhere (a logger to all loggers), and shells, which
        # lead to the user's variables. Only a framework itself knows the parts of its objects.
        package, modules = cls.__module__.partition(".")[0], {one.module for one in self._frameworks}
        is_end = not cls.__dictoffset__ or issubclass(cls, ModuleType)
        is_closed = is_end or package in modules | _SHELLS | sys.stdlib_module_names
        if is_closed and not {package, f"{cls.__module__}.{cls.__name__}"} & _VALUES:
            self._has_opaque = True
        read = None if is_closed else stored_attributes
        if self._moves and (hasattr(cls, "to") or read):
            return _FOREIGN, read
        return _DATA if read else None, read

    def _type_of_array(self, framework: Framework, cls: type) -> _Type:
        """Return the kind of a type of arrays."""
        if not _is_torch(framework):
            return Node("array", framework), None
        from gpu_magic.frameworks.torch_objects import has_own, is_wrapper  # only for PyTorch

        if is_wrapper(cls):  # moves as a whole, and the framework finds its inner tensors
            return Node("array", framework), None
        if self._moves and has_own(cls, "to"):
            return _OWN_TO, None
        return Node("array", framework), parts_of_tensor if self._moves else attributes_of_tensor

    def _read_foreign(self, obj: Any, cls: type, *, is_closed: bool) -> _Read:
        """Return the kind of an object of another package (a pipeline, a cache) for a move.

        If the object holds only arrays and plain values, its attributes move. If it holds a model or an
        optimizer, it is more than data. It may have its own device, to which it moves its inputs.
        """
        inner = Walker(budget=(budget := Budget(_MAX_FOREIGN)))
        has_to, is_more = callable(getattr(cls, "to", None)), False
        inner.searched_for = _is_torch if has_to else None  # then all its tensors count
        for one, node, _ in inner.walk([getattr(obj, "__dict__", {})]):
            is_model = node.framework is not None and node.kind != "array"
            is_more = is_more or is_model or (node.kind == "data" and hasattr(type(one), "to"))
        arrays = [(one, framework) for one, framework in inner.arrays if framework is not None]
        torch = next((framework for _, framework in arrays if _is_torch(framework)), None)
        if has_to and torch is not None:
            tensors = [one for one, framework in arrays if framework is torch]
            return Node("self-moving", torch, arrays=tensors), None
        if is_closed or not arrays:
            return None, None
        is_more = is_more or has_to or inner._has_opaque or bool(budget.unfinished)
        return (_FOREIGN, None) if is_more else (_DATA, stored_attributes(obj))


def _is_of_process(obj: Any, node: Node | None) -> bool:
    """Return whether another package's object is the one that its class keeps, so part of no variable."""
    is_foreign = node is _DATA or node is _FOREIGN
    return is_foreign and any(one is obj for base in type(obj).__mro__ for one in vars(base).values())


def tensors_of(tensor: Any) -> list[Any]:
    """Return a tensor with its own `to`, and the tensors that it keeps as attributes."""
    inner = Walker()
    for _ in inner.walk(attributes_of_tensor(tensor).children):
        pass
    return [tensor, *(one for one, framework in inner.arrays if _is_torch(framework))]


def warn_of_unread(obj: object, error: Exception) -> None:
    """Warn, once for each type, that the arrays of an object are left out because it raised an error."""
    kind = type.__repr__(type(obj))
    why = f"cannot be searched ({type(error).__name__}), so what such objects hold is left out."
    warn_once(kind, f"{kind} {why}")


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
