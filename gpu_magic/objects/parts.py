"""What objects of Python and of the user hold, and how new parts are put into them."""

from __future__ import annotations

import contextlib
import copy
import sys
import sysconfig
from collections import OrderedDict, UserDict, UserList, deque
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from types import MemberDescriptorType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from gpu_magic.frameworks.answers import Components

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["PLAIN", "attributes_of", "class_of", "items_of", "parts_of_error", "put", "stored_attributes"]

# Types whose objects hold nothing, and which most objects are of.
PLAIN = (str, bytes, int, float, complex, bool, type(None), type)
# Where installed packages are.
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class _Class(NamedTuple):
    """What is known about a class."""

    is_users: bool  # defined in the notebook, or in a module that is not installed
    is_frozen: bool  # its objects refuse to be changed
    slots: dict[str, Any]

    @property
    def can_change(self) -> bool:
        return self.is_users and not self.is_frozen


_classes: WeakKeyDictionary[type, _Class] = WeakKeyDictionary()  # a cell that is run again makes new classes


def class_of(cls: type) -> _Class:
    """Return what is known about a class."""
    known = _classes.get(cls)
    if known is None:
        slots = {
            name: value
            for base in reversed(cls.__mro__)
            for name, value in vars(base).items()
            if type(value) is MemberDescriptorType
        }
        of_attrs = getattr(cls.__setattr__, "__name__", "") == "_frozen_setattrs"
        is_frozen = of_attrs or bool(getattr(getattr(cls, "__dataclass_params__", None), "frozen", False))
        known = _classes[cls] = _Class(_is_users(cls), is_frozen or issubclass(cls, tuple), slots)
    return known


def _is_users(cls: type) -> bool:
    module = sys.modules.get(cls.__module__)
    if cls.__module__ == "builtins" or module is None:
        return False
    path = getattr(module, "__file__", None)
    if path is None:  # the notebook, or something that is compiled into Python
        return cls.__module__ in ("__main__", "__mp_main__")
    is_installed = {"site-packages", "dist-packages"} & set(Path(path).parts) or path.startswith(_LIBRARIES)
    return not is_installed and cls.__module__.partition(".")[0] != "gpu_magic"


def put(
    places: Iterable[tuple[Callable[[Any, Any], object], Iterable[Any]]],
    old: Sequence[Any],
    new: Sequence[Any],
) -> None:
    """Store the parts that are new: each place is a function that stores, and the keys that it stores at."""
    keys = ((store, key) for store, keys in places for key in keys)
    for (store, key), before, value in zip(keys, old, new, strict=True):
        if value is not before:
            store(key, value)


def items_of(obj: Any, cls: Any) -> Components | None:
    """Return what a container holds, with its own attributes; None for an object that is not one.

    Only types are looked at, and only methods of Python's own classes are called: an object can claim to be
    of another class, and can raise whatever it is asked.
    """
    if issubclass(cls, dict):
        return _dict(obj, cls)
    for base in (list, deque):
        if issubclass(cls, base):
            items = [*base.__iter__(obj)]
            return _container(obj, cls, base, items, (partial(base.__setitem__, obj), range(len(items))))
    if issubclass(cls, tuple):
        return Components(tuple(tuple.__iter__(obj)), partial(_new_tuple, obj, cls), in_place=False)
    if issubclass(cls, set):
        return Components([*set.__iter__(obj)], partial(_put_set, obj))
    if issubclass(cls, frozenset):
        return Components([*frozenset.__iter__(obj)], lambda _, new: cls(new), in_place=False)
    if issubclass(cls, UserDict | UserList):
        return stored_attributes(obj, cls)
    return _other_items(obj, cls)


def _other_items(obj: Any, cls: Any) -> Components | None:
    if issubclass(cls, type({}.values())):
        return Components([*obj])
    if issubclass(cls, partial):
        inner = [obj.func, *obj.args, *obj.keywords.values()]
        return Components(inner, partial(_new_partial, obj, list(obj.keywords)), in_place=False)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and issubclass(cls, numpy.ndarray) and obj.dtype == object:
        items = list(obj.flat)
        return Components(items, partial(put, [(obj.flat.__setitem__, range(len(items)))]))
    return None


def attributes_of(obj: Any, cls: Any) -> Components | None:
    """Return the attributes of a dataclass, or of an object of the user's own class; None for any other."""
    is_known = is_dataclass(cls) or hasattr(cls, "__attrs_attrs__") or issubclass(cls, SimpleNamespace)
    return stored_attributes(obj, cls) if is_known or class_of(cls).is_users else None


def stored_attributes(obj: Any, cls: Any) -> Components:
    """Return the attributes that an object stores. What a property computes is left out."""
    known, values = class_of(cls), {}
    attributes = getattr(obj, "__dict__", {})
    for name, slot in known.slots.items():
        with contextlib.suppress(AttributeError):  # it is empty
            values[name] = slot.__get__(obj)
    names = [list(attributes), list(values)]
    children = [*attributes.values(), *values.values()]
    return Components(children, partial(_put_attributes, obj, known, names), in_place=not known.is_frozen)


def _put_attributes(
    obj: Any, known: _Class, names: list[list[str]], old: Sequence[Any], new: Sequence[Any]
) -> Any:
    if known.is_frozen:
        obj = copy.copy(obj)
    # Written directly: a __setattr__ of the class could do more.
    stores = (
        getattr(obj, "__dict__", {}).__setitem__,
        lambda name, value: known.slots[name].__set__(obj, value),
    )
    put(zip(stores, names, strict=True), old, new)
    return obj


def parts_of_error(error: BaseException) -> Components:
    """Return what an error holds: errors that led to it, and the local variables of functions.

    Those of a cell are the user's variables, and not the error's.
    """
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    found = [*error.args, *vars(error).values(), *inner, error.__cause__, error.__context__]
    namespace = vars(sys.modules["__main__"])
    step = error.__traceback__
    while step is not None:
        frame, step = step.tb_frame, step.tb_next
        if frame.f_globals is not namespace or frame.f_code.co_name != "<module>":
            found += dict(frame.f_locals).values()
    return Components(found)


def _container(
    obj: Any,
    cls: type,
    base: type,
    items: list[Any],
    place: tuple[Callable[[Any, Any], object], Iterable[Any]],
) -> Components:
    """Return a container's items, and the attributes of one whose class is a subclass."""
    attributes = getattr(obj, "__dict__", {}) if cls is not base else {}
    more = (attributes.__setitem__, list(attributes))
    return Components([*items, *attributes.values()], partial(put, [place, more]))


def _dict(obj: Any, cls: type) -> Components:
    base: Any = OrderedDict if issubclass(cls, OrderedDict) else dict  # that keeps an order of its own
    keys = list(dict.keys(obj))
    found = _container(obj, cls, dict, list(dict.values(obj)), (partial(base.__setitem__, obj), keys))
    objects = [key for key in keys if type(key) is not str and not issubclass(type(key), PLAIN)]
    if not objects:
        return found
    count = len(found.children)

    def put_all(old: Sequence[Any], new: Sequence[Any]) -> None:
        if found.put is not None:
            found.put(old[:count], new[:count])
        new_keys = {id(key): value for key, value in zip(old[count:], new[count:], strict=True)}
        if any(key is not new_keys.get(id(key), key) for key in keys):
            keys[:] = [new_keys.get(id(key), key) for key in keys]  # an undo puts the old keys for these
            base.clear(obj)  # all is written again, so that the order stays
            for key, value in zip(keys, new, strict=False):
                base.__setitem__(obj, key, value)

    return Components([*found.children, *objects], put_all)


def _put_set(obj: Any, old: Sequence[Any], new: Sequence[Any]) -> None:
    for before, value in zip(old, new, strict=True):
        if value is not before:
            set.discard(obj, before)
            set.add(obj, value)


def _new_tuple(obj: Any, cls: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    del old
    if hasattr(cls, "n_sequence_fields"):  # what torch.max and os.stat return
        return cls(new)
    made: Any = tuple.__new__(cls, new)
    if attributes := getattr(obj, "__dict__", None):
        vars(made).update(attributes)
    return made


def _new_partial(obj: Any, names: Sequence[str], old: Sequence[Any], new: Sequence[Any]) -> Any:
    del old
    function, *rest = new
    count = len(rest) - len(names)
    made = type(obj)(function, *rest[:count], **dict(zip(names, rest[count:], strict=True)))
    vars(made).update(vars(obj))
    return made
