"""Looks into objects of other packages' classes (a pipeline, a cache, a distribution) for arrays."""

from __future__ import annotations

import sys
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ReferenceType

from gpu_magic.placement.components import PLAIN, attributes_of, items_of, stored_attributes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.frameworks.base import Framework

__all__ = ["Inside", "is_opaque", "look_inside"]

# How many objects are looked at in one.
_MOST = 2_000
# Types whose objects lead to no array, or to those of everybody.
_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType)
_ENDS = (*PLAIN, *_FUNCTIONS, BaseException, ModuleType, ReferenceType)
# Packages whose objects lead to the user's variables, and are not theirs.
_SHELLS = frozenset(("IPython", "ipykernel", "traitlets", "gpu_magic"))
# Types without attributes that are plain values; others can stand for anything: a lock, a file, a stream.
_VALUES = ("slice", "range", "ellipsis", "bytearray", "mappingproxy")
_VALUES_OF = ("datetime", "decimal", "fractions", "pathlib", "uuid", "numpy")
_VALUES_OF_TORCH = ("device", "dtype", "layout", "memory_format")


class Inside(NamedTuple):
    """What was found in an object.

    Parameters
    ----------
    arrays
        The frameworks' arrays.
    is_data
        Whether the arrays and plain values are all that there is, so that it can be moved attribute by
        attribute.
    looked_at
        The number of objects that were looked at.

    """

    arrays: Sequence[Any]
    is_data: bool
    looked_at: int


def is_opaque(cls: type, frameworks: Sequence[Framework]) -> bool:
    """Return whether objects of a type are not looked into.

    Python's own lead anywhere (a logger to all loggers). What a framework does not say of its own objects,
    nobody else knows.
    """
    package = cls.__module__.partition(".")[0]
    return (
        not cls.__dictoffset__
        or issubclass(cls, _ENDS)
        or package in sys.stdlib_module_names
        or package in _SHELLS
        or any(package == framework.module for framework in frameworks)
    )


def look_inside(obj: Any, frameworks: Sequence[Framework]) -> Inside:
    """Look through an object's attributes, and what they lead to, up to some thousand objects.

    A model or an optimizer in it shows that it is more than data: it may have a device of its own, where it
    puts what it is given.
    """
    arrays: list[Any] = []
    is_data = True
    pending, seen = [obj], {id(obj)}
    variables = vars(sys.modules["__main__"])
    while pending:
        value = pending.pop()
        cls = type(value)
        if issubclass(cls, _ENDS) or value is variables:
            continue
        if any(framework.is_array(cls) for framework in frameworks):
            arrays.append(value)
            continue
        children, is_simple = _children(value, cls, frameworks)
        is_data = is_data and is_simple
        for child in children:
            if id(child) not in seen:
                seen.add(id(child))
                pending.append(child)
        if len(seen) > _MOST:
            is_data = False
            break
    return Inside(arrays, is_data, len(seen))


def _children(value: Any, cls: type, frameworks: Sequence[Framework]) -> tuple[Sequence[Any], bool]:
    """Return what an object leads to, and whether it is no more than its components."""
    for framework in frameworks:
        if (components := framework.components(value)) is not None:
            return components.children, not components.in_place
    if (components := items_of(value, cls) or attributes_of(value, cls)) is not None:
        return components.children, True
    if not is_opaque(cls, frameworks):
        return stored_attributes(value, cls).children, not callable(getattr(cls, "to", None))
    package = cls.__module__.partition(".")[0]
    is_value = package in _VALUES_OF or cls.__name__ in (_VALUES_OF_TORCH if package == "torch" else _VALUES)
    return (), is_value
