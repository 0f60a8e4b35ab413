"""Copies objects with all that they hold and all that ties them together, and functions that use them.

It is what `copy.deepcopy` does, except that functions are copied as well, where they lead to something that
is; that nothing of an object's own decides how (`__deepcopy__`, `__reduce__`); and that what can't be copied,
a lock or a file, is shared.
"""

from __future__ import annotations

import sys
import weakref
from collections import OrderedDict, defaultdict, deque
from functools import partial
from types import CellType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from gpu_magic.frameworks.prediction import NotFollowed
from gpu_magic.frameworks.shadow.code import Code, is_users_class, is_users_module
from gpu_magic.frameworks.shadow.generators import drawing_module, own_copy
from gpu_magic.frameworks.shadow.outside import outside
from gpu_magic.frameworks.shadow.shown import silent
from gpu_magic.text import with_article

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SHARED", "Shadow"]

# Returned for an object that is neither copied nor replaced.
SHARED = object()
_ATOMIC = frozenset((str, bytes, int, float, complex, bool, type(None), type(...), range, slice))
# How many objects are copied at most: those of a model and of a training loop are some ten thousand.
_MOST = 1_000_000


class Shadow:
    """Copies objects, each once.

    Parameters
    ----------
    special
        Called with each object that is not plain; returns what stands in for it, or None.

    """

    def __init__(self, special: Callable[[Any], Any]) -> None:
        self._special = special
        self._copies: dict[int, Any] = {}
        self._originals: list[Any] = []  # what is remembered by its id has to live
        self._code = Code(self.copy, self.remember)

    def remember(self, original: Any, copy: Any) -> Any:
        """Have all references to an object lead to this copy; return the copy."""
        if len(self._originals) > _MOST:
            raise NotFollowed("it leads to more than a million objects, which takes too long to copy")
        self._originals.append(original)
        self._copies[id(original)] = copy
        return copy

    def copy(self, obj: Any) -> Any:
        """Return the copy of an object.

        Raises
        ------
        NotFollowed
            It is one that would be changed by being used, and can't be copied: an iterator.

        """
        cls = type(obj)
        if cls in _ATOMIC:
            return obj
        key = id(obj)
        if key in self._copies:
            return self._copies[key]
        stand_in = self._special(obj)
        if stand_in is not None:
            return self.remember(obj, obj if stand_in is SHARED else stand_in)
        maker = self._makers.get(cls)
        return maker(self, obj) if maker is not None else self._other(obj, cls)

    def plain(self, obj: Any) -> Any:
        """Return the copy of an object by its attributes, whatever is special about it."""
        return self._other(obj, type(obj))

    def close(self) -> None:
        """Let go of all objects, and of their copies."""
        self._copies.clear()
        self._originals.clear()
        self._code.close()

    def globals_of(self, namespace: dict[str, Any]) -> dict[str, Any]:
        """Return a namespace whose values are copies of another's, made when they are asked for."""
        return self._code.globals_of(namespace)

    def _list(self, obj: list[Any]) -> list[Any]:
        new: list[Any] = self.remember(obj, [])
        new.extend(map(self.copy, obj))
        return new

    def _tuple(self, obj: tuple[Any, ...]) -> tuple[Any, ...]:
        new = tuple(map(self.copy, obj))
        if id(obj) in self._copies:  # it is a part of itself
            return self._copies[id(obj)]  # type: ignore[no-any-return]
        is_same = all(one is other for one, other in zip(new, obj, strict=True))
        return self.remember(obj, obj if is_same else new)  # type: ignore[no-any-return]

    def _dict(self, obj: dict[Any, Any]) -> dict[Any, Any]:
        return self._fill(obj, self.remember(obj, {}))

    def _default_dict(self, obj: defaultdict[Any, Any]) -> dict[Any, Any]:
        return self._fill(obj, self.remember(obj, defaultdict(self.copy(obj.default_factory))))

    def _fill(self, obj: dict[Any, Any], new: dict[Any, Any]) -> dict[Any, Any]:
        for name, value in list(dict.items(obj)):
            dict.__setitem__(new, self.copy(name), self.copy(value))
        if isinstance(new, OrderedDict):  # it has an order besides that of the dict
            OrderedDict.clear(new)
            for name, value in list(obj.items()):
                OrderedDict.__setitem__(new, self.copy(name), self.copy(value))
        return new

    def _set(self, obj: Any) -> Any:
        return self.remember(obj, type(obj)(map(self.copy, obj)))

    def _deque(self, obj: deque[Any]) -> deque[Any]:
        new: deque[Any] = self.remember(obj, deque(maxlen=obj.maxlen))
        new.extend(map(self.copy, obj))
        return new

    def _partial(self, obj: partial[Any]) -> Any:
        inner = self.copy(obj.func), self.copy(obj.args), self.copy(obj.keywords)
        return self.remember(obj, partial(inner[0], *inner[1], **inner[2]))

    def _method(self, obj: MethodType) -> MethodType:
        return MethodType(self.copy(obj.__func__), self.copy(obj.__self__))

    def _reference(self, obj: weakref.ref[Any]) -> Any:
        there = obj()
        return obj if there is None else weakref.ref(self.copy(there))

    def _builtin(self, obj: Any) -> Any:
        """Return a method of a builtin object, `losses.append`, over the copy of that."""
        if (quiet := silent(obj, self.copy)) is not None:
            return quiet
        owner = getattr(obj, "__self__", None)
        if owner is None or isinstance(owner, ModuleType | type):
            return obj
        new = self.copy(owner)
        return obj if new is owner else getattr(new, obj.__name__)

    def _function(self, obj: FunctionType) -> Any:
        quiet = silent(obj, self.copy)
        return self._code.function(obj) if quiet is None else quiet

    def _cell(self, obj: CellType) -> CellType:
        return self._code.cell(obj)

    def _module(self, obj: ModuleType) -> Any:
        if is_users_module(obj):
            return self._code.module(obj)
        seen = silent(obj, self.copy) or drawing_module(obj, self.copy)
        return obj if seen is None else self.remember(obj, seen)

    def _generator(self, obj: Any) -> Any:
        raise NotFollowed(
            f"it uses {with_article(type(obj).__name__)}, which can't be copied and would be advanced; "
            "use what it yields: batch = next(it)"
        )

    def _other(self, obj: Any, cls: type) -> Any:
        if (quiet := silent(obj, self.copy)) is not None:
            return self.remember(obj, quiet)
        if isinstance(obj, type):
            return self._code.class_(obj) if is_users_class(obj) else obj
        beyond = outside(cls)
        new = own_copy(obj) if beyond is None else beyond
        if new is not None:
            return self.remember(obj, new)
        if hasattr(cls, "__next__"):
            return self._generator(obj)
        array = _array_type()
        if array is not None and issubclass(cls, array):
            return self.remember(obj, _unwritable(obj))
        if issubclass(cls, tuple):
            return self._named_tuple(obj, cls)
        base = next((kind for kind in (OrderedDict, dict, list, set) if issubclass(cls, kind)), object)
        is_plain = base is object and not (hasattr(obj, "__dict__") or _slots(cls))
        return obj if is_plain or issubclass(cls, ModuleType) else self._instance(obj, cls, base)

    def _instance(self, obj: Any, cls: type, base: Any) -> Any:
        """Return an object of the same class with copies of its attributes, and of what it contains."""
        try:
            new = base.__new__(self.copy(cls) if is_users_class(cls) else cls)
        except TypeError:  # it is made in C: nothing of it can be copied
            return obj
        self.remember(obj, new)
        if base is list:
            list.extend(new, map(self.copy, list.__iter__(obj)))
        elif base is set:
            set.update(new, map(self.copy, set.__iter__(obj)))
        elif base is not object:
            self._fill(obj, new)
        self._attributes(obj, new, cls)
        return new

    def _named_tuple(self, obj: Any, cls: Any) -> Any:
        items = [self.copy(item) for item in tuple.__iter__(obj)]
        new_class = self.copy(cls) if is_users_class(cls) else cls
        try:
            return self.remember(obj, tuple.__new__(new_class, items))
        except TypeError:  # one that C makes, torch.Size and what operations return
            return obj

    def _attributes(self, obj: Any, new: Any, cls: type) -> None:
        for name, value in list(getattr(obj, "__dict__", {}).items()):
            new.__dict__[name] = self.copy(value)
        for member in _slots(cls):
            try:
                value = member.__get__(obj, cls)
            except AttributeError:  # it has no value
                continue
            member.__set__(new, self.copy(value))

    _makers: ClassVar[dict[type, Callable[[Any, Any], Any]]] = {
        list: _list,
        tuple: _tuple,
        dict: _dict,
        defaultdict: _default_dict,
        set: _set,
        frozenset: _set,
        deque: _deque,
        partial: _partial,
        MethodType: _method,
        FunctionType: _function,
        ModuleType: _module,
        GeneratorType: _generator,
        weakref.ref: _reference,
        type(len): _builtin,
        CellType: _cell,
    }


def _slots(cls: type) -> list[Any]:
    """Return the slots of a class written in Python, and of its bases."""
    found = []
    for base in cls.__mro__:
        names = base.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ("__dict__", "__weakref__"):
                private = f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") else name
                if (member := base.__dict__.get(private)) is not None:
                    found.append(member)
    return found


def _array_type() -> Any:
    numpy: Any = sys.modules.get("numpy")
    return None if numpy is None else numpy.ndarray


def _unwritable(array: Any) -> Any:
    """Return a view of a NumPy array that can't be written to."""
    view = array.view()
    view.flags.writeable = False
    return view
