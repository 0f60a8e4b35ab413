"""What Python's own objects are made of, and the user's: containers, dataclasses, attributes."""

from __future__ import annotations

import copy
import sys
import sysconfig
from collections import UserDict, UserList, deque
from dataclasses import fields, is_dataclass
from functools import cache, partial
from types import MemberDescriptorType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from gpu_magic.frameworks.base import Parts

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["COMMON", "PLAIN", "attributes_of", "items_of"]

# What holds nothing, and is met most often.
PLAIN = (str, bytes, int, float, complex, bool, type(None), type)
# Containers that no framework has anything to say about.
COMMON = (dict, list, tuple, set, frozenset)
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def items_of(thing: Any, kind: Any) -> Parts | None:
    """Return what a container holds, its own attributes included; None for what is no container.

    It goes by types: an object can claim to be of another class, and can raise whatever it is asked.
    """
    if issubclass(kind, dict):
        return _with_attributes(_dict(thing), thing, kind, dict)
    if issubclass(kind, list):
        return _with_attributes(Parts(list.copy(thing), partial(_put_list, thing)), thing, kind, list)
    if issubclass(kind, tuple):
        return Parts(tuple(tuple.__iter__(thing)), partial(_new_tuple, thing, kind), is_kept=False)
    if issubclass(kind, deque):
        return _with_attributes(
            Parts([*deque.__iter__(thing)], partial(_put_deque, thing)), thing, kind, deque
        )
    if issubclass(kind, set):
        return _with_attributes(Parts([*set.__iter__(thing)], partial(_put_set, thing)), thing, kind, set)
    if issubclass(kind, frozenset):
        return Parts([*frozenset.__iter__(thing)], kind, is_kept=False)
    return _other_items(thing, kind)


def _other_items(thing: Any, kind: Any) -> Parts | None:
    if issubclass(kind, UserDict | UserList):
        return _attributes(thing, kind)
    if issubclass(kind, type({}.values())):
        return Parts([*thing])
    if issubclass(kind, partial):
        names = list(thing.keywords)
        inner = [thing.func, *thing.args, *thing.keywords.values()]
        return Parts(inner, partial(_new_partial, kind, names), is_kept=False)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, numpy.ndarray) and thing.dtype == object:
        return Parts(list(thing.flat), partial(_put_objects, thing))
    return None


def attributes_of(thing: Any, kind: Any) -> Parts | None:
    """Return what a dataclass, or an object of the user's own class (a trainer, a batch), keeps."""
    if is_dataclass(kind):
        names = [field.name for field in fields(kind) if hasattr(thing, field.name)]
        return _attributes(thing, kind, names)
    if hasattr(kind, "__attrs_attrs__") or issubclass(kind, SimpleNamespace) or _is_users(kind):
        return _attributes(thing, kind)
    return None


@cache
def _is_users(kind: type) -> bool:
    """Tell whether a class is the user's own: its module is the notebook, or no installed one."""
    module = sys.modules.get(kind.__module__)
    if kind.__module__ == "builtins" or module is None:
        return False
    path = getattr(module, "__file__", None)
    if path is None:  # the notebook, or something that is compiled into Python
        return kind.__module__ in ("__main__", "__mp_main__")
    return kind.__module__.partition(".")[0] != "gpu_magic" and not str(path).startswith(_LIBRARIES)


def _attributes(thing: Any, kind: Any, names: Sequence[str] = ()) -> Parts:
    mine = getattr(thing, "__dict__", {})
    slots = [name for name in _slots(kind) if hasattr(thing, name)]
    names = list(dict.fromkeys([*names, *mine, *slots]))
    # Not what a property makes up when it is asked.
    values = [mine[name] if name in mine else getattr(thing, name, None) for name in names]
    return Parts(values, partial(_put_attributes, thing, names), is_kept=not _is_frozen(kind))


@cache
def _slots(kind: type) -> tuple[str, ...]:
    found = (vars(base).items() for base in kind.__mro__)
    return tuple(name for items in found for name, one in items if type(one) is MemberDescriptorType)


@cache
def _is_frozen(kind: type) -> bool:
    """Tell whether a dataclass, or an attrs class, refuses to be changed."""
    parameters = getattr(kind, "__dataclass_params__", None)
    name = getattr(kind.__setattr__, "__name__", "")
    return bool(getattr(parameters, "frozen", False)) or name == "_frozen_setattrs"


def _put_attributes(thing: Any, names: Sequence[str], new: Sequence[Any]) -> Any:
    kind: Any = type(thing)
    if _is_frozen(kind):
        thing = copy.copy(thing)
    for name, value in zip(names, new, strict=True):
        object.__setattr__(thing, name, value)  # as it is: without what the class does beside it
    return thing


def _with_attributes(parts: Parts, thing: Any, kind: type, base: type) -> Parts:
    """Add the attributes that a subclass of a container has."""
    mine = vars(thing) if kind is not base and hasattr(thing, "__dict__") else None
    if not mine or parts.put is None:
        return parts
    count, put, names = len(parts.things), parts.put, list(mine)

    def put_all(new: Sequence[Any]) -> Any:
        put(new[:count])
        mine.update(zip(names, new[count:], strict=True))
        return thing

    return Parts([*parts.things, *mine.values()], put_all)


def _dict(thing: Any) -> Parts:
    keys = list(dict.keys(thing))
    odd = [place for place, key in enumerate(keys) if not isinstance(key, PLAIN)]
    values = list(dict.values(thing))
    if not odd:
        return Parts(values, partial(_put_values, thing, keys))
    return Parts([*values, *(keys[place] for place in odd)], partial(_put_keys, thing, keys, odd))


def _put_values(thing: Any, keys: Sequence[Any], new: Sequence[Any]) -> Any:
    for key, value in zip(keys, new, strict=True):
        dict.__setitem__(thing, key, value)
    return thing


def _put_keys(thing: Any, keys: Sequence[Any], odd: Sequence[int], new: Sequence[Any]) -> Any:
    values, others = new[: len(keys)], dict(zip(odd, new[len(keys) :], strict=True))
    keys_now = [others.get(place, key) for place, key in enumerate(keys)]
    if all(one is other for one, other in zip(keys_now, dict.keys(thing), strict=False)):
        return _put_values(thing, keys_now, values)
    thing.clear()
    return _put_values(thing, keys_now, values)


def _put_list(thing: Any, new: Sequence[Any]) -> Any:
    list.__setitem__(thing, slice(None), new)
    return thing


def _put_deque(thing: Any, new: Sequence[Any]) -> Any:
    for place, value in enumerate(new):
        deque.__setitem__(thing, place, value)
    return thing


def _put_set(thing: Any, new: Sequence[Any]) -> Any:
    set.clear(thing)
    set.update(thing, new)
    return thing


def _put_objects(thing: Any, new: Sequence[Any]) -> Any:
    for place, value in enumerate(new):
        thing.flat[place] = value
    return thing


def _new_tuple(thing: Any, kind: Any, new: Sequence[Any]) -> Any:
    if hasattr(kind, "n_sequence_fields"):  # what torch.max and os.stat return
        return kind(new)
    made: Any = tuple.__new__(kind, new)
    if mine := getattr(thing, "__dict__", None):
        vars(made).update(mine)
    return made


def _new_partial(kind: Any, names: Sequence[str], new: Sequence[Any]) -> Any:
    function, *rest = new
    count = len(rest) - len(names)
    return kind(function, *rest[:count], **dict(zip(names, rest[count:], strict=True)))
