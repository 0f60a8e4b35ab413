"""What Python's own objects are made of, and the user's: containers, dataclasses, attributes."""

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

from gpu_magic.frameworks.base import Components

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["COMMON", "PLAIN", "attributes_of", "can_change", "is_frozen", "items_of"]

# What holds nothing, and is met most often.
PLAIN = (str, bytes, int, float, complex, bool, type(None), type)
# Containers that no framework has anything to say about: they are changed in place.
COMMON = (dict, list, set, frozenset, deque)
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class _Class(NamedTuple):
    """What is known of a class: whether it is the user's own, whether it refuses changes, its slots."""

    is_users: bool
    is_frozen: bool
    slots: tuple[str, ...]


_classes: WeakKeyDictionary[type, _Class] = WeakKeyDictionary()  # a cell that is run again makes new ones


def items_of(thing: Any, kind: Any) -> Components | None:
    """Return what a container holds, its own attributes included; None for what is no container.

    It goes by types: an object can claim to be of another class, and can raise whatever it is asked.
    """
    if issubclass(kind, dict):
        return _with_attributes(_dict(thing), thing, kind, dict)
    if issubclass(kind, list):
        return _with_attributes(Components(list.copy(thing), partial(_put_list, thing)), thing, kind, list)
    if issubclass(kind, tuple):
        return Components(tuple(tuple.__iter__(thing)), partial(_new_tuple, thing, kind), is_kept=False)
    if issubclass(kind, deque):
        return _with_attributes(
            Components([*deque.__iter__(thing)], partial(_put_deque, thing)), thing, kind, deque
        )
    if issubclass(kind, set):
        return _with_attributes(
            Components([*set.__iter__(thing)], partial(_put_set, thing)), thing, kind, set
        )
    if issubclass(kind, frozenset):
        return Components([*frozenset.__iter__(thing)], lambda _, new: kind(new), is_kept=False)
    return _other_items(thing, kind)


def _other_items(thing: Any, kind: Any) -> Components | None:
    if issubclass(kind, UserDict | UserList):
        return _attributes(thing, kind)
    if issubclass(kind, type({}.values())):
        return Components([*thing])
    if issubclass(kind, partial):
        names = list(thing.keywords)
        inner = [thing.func, *thing.args, *thing.keywords.values()]
        return Components(inner, partial(_new_partial, thing, names), is_kept=False)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, numpy.ndarray) and thing.dtype == object:
        return Components(list(thing.flat), partial(_put_objects, thing))
    return None


def attributes_of(thing: Any, kind: Any) -> Components | None:
    """Return what a dataclass, or an object of the user's own class (a trainer, a batch), keeps."""
    is_known = is_dataclass(kind) or hasattr(kind, "__attrs_attrs__") or issubclass(kind, SimpleNamespace)
    return _attributes(thing, kind) if is_known or _class(kind).is_users else None


def can_change(kind: type) -> bool:
    """Tell whether objects of a class of the user's own can be changed, and so stay the same ones."""
    return _class(kind).is_users and not _class(kind).is_frozen and not issubclass(kind, tuple)


def is_frozen(kind: type) -> bool:
    """Tell whether a dataclass, or an attrs class, refuses to be changed."""
    return _class(kind).is_frozen


def _class(kind: type) -> _Class:
    known = _classes.get(kind)
    if known is None:
        items = [item for base in kind.__mro__ for item in vars(base).items()]
        slots = tuple(name for name, one in items if type(one) is MemberDescriptorType)
        parameters = getattr(kind, "__dataclass_params__", None)
        refuses = getattr(kind.__setattr__, "__name__", "") == "_frozen_setattrs"
        frozen = bool(getattr(parameters, "frozen", False)) or refuses
        known = _classes[kind] = _Class(_is_users(kind), frozen, slots)
    return known


def _is_users(kind: type) -> bool:
    """Tell whether a class is the user's own: its module is the notebook, or no installed one."""
    module = sys.modules.get(kind.__module__)
    if kind.__module__ == "builtins" or module is None:
        return False
    path = getattr(module, "__file__", None)
    if path is None:  # the notebook, or something that is compiled into Python
        return kind.__module__ in ("__main__", "__mp_main__")
    is_installed = {"site-packages", "dist-packages"} & set(Path(path).parts) or str(path).startswith(
        _LIBRARIES
    )
    return not is_installed and kind.__module__.partition(".")[0] != "gpu_magic"


def _attributes(thing: Any, kind: Any) -> Components:
    """Return what stands in an object itself, and not what a property makes up when it is asked."""
    mine = getattr(thing, "__dict__", {})
    slots = [name for name in _class(kind).slots if name not in ("__dict__", "__weakref__")]
    values = {
        name: vars(_home(kind, name))[name].__get__(thing) for name in slots if _is_filled(thing, kind, name)
    }
    names = [*mine, *values]
    put = partial(_put_attributes, thing, names)
    return Components([*mine.values(), *values.values()], put, is_kept=not is_frozen(kind))


def _home(kind: Any, name: str) -> Any:
    """Return the class that a slot is of."""
    return next(base for base in kind.__mro__ if type(vars(base).get(name)) is MemberDescriptorType)


def _is_filled(thing: Any, kind: Any, name: str) -> bool:
    try:
        vars(_home(kind, name))[name].__get__(thing)
    except AttributeError:
        return False
    return True


def _put_attributes(thing: Any, names: Sequence[str], old: Sequence[Any], new: Sequence[Any]) -> Any:
    kind: Any = type(thing)
    if is_frozen(kind):
        thing = copy.copy(thing)
    mine = getattr(thing, "__dict__", {})
    for name, before, value in zip(names, old, new, strict=True):
        if value is before:
            continue
        if name in mine:  # as it is: without what the class does beside it
            mine[name] = value
        else:
            vars(_home(kind, name))[name].__set__(thing, value)
    return thing


def _with_attributes(parts: Components, thing: Any, kind: type, base: type) -> Components:
    """Add the attributes that a subclass of a container has."""
    mine = vars(thing) if kind is not base and hasattr(thing, "__dict__") else None
    if not mine or parts.put is None:
        return parts
    count, put, names = len(parts.children), parts.put, list(mine)

    def put_all(old: Sequence[Any], new: Sequence[Any]) -> Any:
        put(old[:count], new[:count])
        for name, before, value in zip(names, old[count:], new[count:], strict=True):
            if value is not before:
                mine[name] = value
        return thing

    return Components([*parts.children, *mine.values()], put_all)


def _dict(thing: Any) -> Components:
    keys = list(dict.keys(thing))
    odd = [key for key in keys if type(key) is not str and not isinstance(key, PLAIN)]
    return Components([*dict.values(thing), *odd], partial(_put_items, thing, keys))


def _put_items(thing: Any, keys: list[Any], old: Sequence[Any], new: Sequence[Any]) -> Any:
    base: Any = OrderedDict if isinstance(thing, OrderedDict) else dict  # which keeps an order of its own
    count = len(keys)
    if any(one is not before for one, before in zip(new[count:], old[count:], strict=True)):
        others = {id(before): one for one, before in zip(new[count:], old[count:], strict=True)}
        base.clear(thing)
        for key, value in zip(keys, new, strict=False):
            base.__setitem__(thing, others.get(id(key), key), value)
        keys[:] = [others.get(id(key), key) for key in keys]  # for the undoing of it
        return thing
    for key, before, value in zip(keys, old, new, strict=False):
        if value is not before:
            base.__setitem__(thing, key, value)
    return thing


def _put_list(thing: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    for place, (before, value) in enumerate(zip(old, new, strict=True)):
        if value is not before:
            list.__setitem__(thing, place, value)
    return thing


def _put_deque(thing: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    for place, (before, value) in enumerate(zip(old, new, strict=True)):
        if value is not before:
            deque.__setitem__(thing, place, value)
    return thing


def _put_set(thing: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    for before, value in zip(old, new, strict=True):
        if value is not before:
            set.discard(thing, before)
            set.add(thing, value)
    return thing


def _put_objects(thing: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    for place, (before, value) in enumerate(zip(old, new, strict=True)):
        if value is not before:
            thing.flat[place] = value
    return thing


def _new_tuple(thing: Any, kind: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    del old
    if hasattr(kind, "n_sequence_fields"):  # what torch.max and os.stat return
        return kind(new)
    made: Any = tuple.__new__(kind, new)
    if mine := getattr(thing, "__dict__", None):
        vars(made).update(mine)
    return made


def _new_partial(thing: Any, names: Sequence[str], old: Sequence[Any], new: Sequence[Any]) -> Any:
    del old
    function, *rest = new
    count = len(rest) - len(names)
    made = type(thing)(function, *rest[:count], **dict(zip(names, rest[count:], strict=True)))
    vars(made).update(vars(thing))
    return made
