"""What objects of Python and of the user are made of: containers, dataclasses, attributes."""

from __future__ import annotations

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
    from collections.abc import Sequence

__all__ = [
    "COMMON",
    "PLAIN",
    "attributes_of",
    "can_change",
    "is_frozen",
    "is_users",
    "items_of",
    "stored_attributes",
]

# Types whose objects hold nothing, and which most objects are of.
PLAIN = (str, bytes, int, float, complex, bool, type(None), type)
# Containers that are never a framework's own, so none is asked about them.
COMMON = (dict, list, set, frozenset, deque)
# Where installed packages are.
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class _Class(NamedTuple):
    """What is known about a class.

    Parameters
    ----------
    is_users
        Whether it is the user's own: defined in the notebook, or in a module that is not installed.
    is_frozen
        Whether its objects refuse to be changed.
    slots
        The names of its slots, and of those of its bases.

    """

    is_users: bool
    is_frozen: bool
    slots: tuple[str, ...]


_classes: WeakKeyDictionary[type, _Class] = WeakKeyDictionary()  # a cell that is run again makes new classes


def items_of(obj: Any, cls: Any) -> Components | None:
    """Return what a container holds, its own attributes included; None for an object that is not one.

    Only types are looked at: an object can claim to be of another class, and can raise whatever it is asked.
    """
    if issubclass(cls, dict):
        return _with_attributes(_dict(obj), obj, cls, dict)
    if issubclass(cls, list):
        return _with_attributes(Components(list.copy(obj), partial(_put_list, obj)), obj, cls, list)
    if issubclass(cls, tuple):
        return Components(tuple(tuple.__iter__(obj)), partial(_new_tuple, obj, cls), in_place=False)
    if issubclass(cls, deque):
        return _with_attributes(Components([*deque.__iter__(obj)], partial(_put_deque, obj)), obj, cls, deque)
    if issubclass(cls, set):
        return _with_attributes(Components([*set.__iter__(obj)], partial(_put_set, obj)), obj, cls, set)
    if issubclass(cls, frozenset):
        return Components([*frozenset.__iter__(obj)], lambda _, new: cls(new), in_place=False)
    return _other_items(obj, cls)


def _other_items(obj: Any, cls: Any) -> Components | None:
    if issubclass(cls, UserDict | UserList):
        return stored_attributes(obj, cls)
    if issubclass(cls, type({}.values())):
        return Components([*obj])
    if issubclass(cls, partial):
        names = list(obj.keywords)
        inner = [obj.func, *obj.args, *obj.keywords.values()]
        return Components(inner, partial(_new_partial, obj, names), in_place=False)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and issubclass(cls, numpy.ndarray) and obj.dtype == object:
        return Components(list(obj.flat), partial(_put_objects, obj))
    return None


def attributes_of(obj: Any, cls: Any) -> Components | None:
    """Return the attributes of a dataclass, or of an object of the user's own class (a trainer, a batch)."""
    is_known = is_dataclass(cls) or hasattr(cls, "__attrs_attrs__") or issubclass(cls, SimpleNamespace)
    return stored_attributes(obj, cls) if is_known or is_users(cls) else None


def is_users(cls: type) -> bool:
    """Return whether a class is the user's own: of the notebook, or of a module that is not installed."""
    return _class(cls).is_users


def can_change(cls: type) -> bool:
    """Return whether a class is the user's own and its objects can be changed in place."""
    return is_users(cls) and not _class(cls).is_frozen and not issubclass(cls, tuple)


def is_frozen(cls: type) -> bool:
    """Return whether objects of a class (a dataclass, an attrs class) refuse to be changed."""
    return _class(cls).is_frozen


def _class(cls: type) -> _Class:
    known = _classes.get(cls)
    if known is None:
        items = [item for base in cls.__mro__ for item in vars(base).items()]
        slots = tuple(name for name, value in items if type(value) is MemberDescriptorType)
        parameters = getattr(cls, "__dataclass_params__", None)
        refuses = getattr(cls.__setattr__, "__name__", "") == "_frozen_setattrs"
        frozen = bool(getattr(parameters, "frozen", False)) or refuses
        known = _classes[cls] = _Class(_is_users(cls), frozen, slots)
    return known


def _is_users(cls: type) -> bool:
    """Return whether a class is the user's own: its module is the notebook, or is not installed."""
    module = sys.modules.get(cls.__module__)
    if cls.__module__ == "builtins" or module is None:
        return False
    path = getattr(module, "__file__", None)
    if path is None:  # the notebook, or something that is compiled into Python
        return cls.__module__ in ("__main__", "__mp_main__")
    is_installed = {"site-packages", "dist-packages"} & set(Path(path).parts) or str(path).startswith(
        _LIBRARIES
    )
    return not is_installed and cls.__module__.partition(".")[0] != "gpu_magic"


def stored_attributes(obj: Any, cls: Any) -> Components:
    """Return the attributes that are stored in an object, and not those that a property computes."""
    attributes = getattr(obj, "__dict__", {})
    slots = [name for name in _class(cls).slots if name not in ("__dict__", "__weakref__")]
    values = {
        name: vars(_owner(cls, name))[name].__get__(obj) for name in slots if _is_filled(obj, cls, name)
    }
    names = [*attributes, *values]
    put = partial(_put_attributes, obj, names)
    return Components([*attributes.values(), *values.values()], put, in_place=not is_frozen(cls))


def _owner(cls: Any, name: str) -> Any:
    """Return the class that defines a slot."""
    return next(base for base in cls.__mro__ if type(vars(base).get(name)) is MemberDescriptorType)


def _is_filled(obj: Any, cls: Any, name: str) -> bool:
    try:
        vars(_owner(cls, name))[name].__get__(obj)
    except AttributeError:
        return False
    return True


def _put_attributes(obj: Any, names: Sequence[str], old: Sequence[Any], new: Sequence[Any]) -> Any:
    cls: Any = type(obj)
    if is_frozen(cls):
        obj = copy.copy(obj)
    attributes = getattr(obj, "__dict__", {})
    for name, before, value in zip(names, old, new, strict=True):
        if value is before:
            continue
        if name in attributes:  # written directly: a __setattr__ of the class could do more
            attributes[name] = value
        else:
            vars(_owner(cls, name))[name].__set__(obj, value)
    return obj


def _with_attributes(items: Components, obj: Any, cls: type, base: type) -> Components:
    """Add the attributes of a container whose class is a subclass."""
    attributes = vars(obj) if cls is not base and hasattr(obj, "__dict__") else None
    if not attributes or items.put is None:
        return items
    count, put, names = len(items.children), items.put, list(attributes)

    def put_all(old: Sequence[Any], new: Sequence[Any]) -> Any:
        put(old[:count], new[:count])
        for name, before, value in zip(names, old[count:], new[count:], strict=True):
            if value is not before:
                attributes[name] = value
        return obj

    return Components([*items.children, *attributes.values()], put_all)


def _dict(obj: Any) -> Components:
    keys = list(dict.keys(obj))
    objects = [key for key in keys if type(key) is not str and not issubclass(type(key), PLAIN)]
    return Components([*dict.values(obj), *objects], partial(_put_items, obj, keys))


def _put_items(obj: Any, keys: list[Any], old: Sequence[Any], new: Sequence[Any]) -> Any:
    """Put values, and after them keys that are objects, into a dict."""
    # OrderedDict keeps an order of its own.
    base: Any = OrderedDict if issubclass(type(obj), OrderedDict) else dict
    count = len(keys)
    new_keys = {
        id(before): key for before, key in zip(old[count:], new[count:], strict=True) if key is not before
    }
    if new_keys:  # all is written anew, so that the order stays
        base.clear(obj)
        for key, value in zip(keys, new, strict=False):
            base.__setitem__(obj, new_keys.get(id(key), key), value)
        keys[:] = [new_keys.get(id(key), key) for key in keys]  # an undo puts the old keys for these
        return obj
    for key, before, value in zip(keys, old, new, strict=False):
        if value is not before:
            base.__setitem__(obj, key, value)
    return obj


def _put_list(obj: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    for index, (before, value) in enumerate(zip(old, new, strict=True)):
        if value is not before:
            list.__setitem__(obj, index, value)
    return obj


def _put_deque(obj: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    for index, (before, value) in enumerate(zip(old, new, strict=True)):
        if value is not before:
            deque.__setitem__(obj, index, value)
    return obj


def _put_set(obj: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    for before, value in zip(old, new, strict=True):
        if value is not before:
            set.discard(obj, before)
            set.add(obj, value)
    return obj


def _put_objects(obj: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    for index, (before, value) in enumerate(zip(old, new, strict=True)):
        if value is not before:
            obj.flat[index] = value
    return obj


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
