"""Copies of generators of random numbers, and of other objects made in C that change when they are used."""

from __future__ import annotations

import array
import copy
import random
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["drawing_module", "own_copy"]

_COPIED = (array.array, bytearray, random.Random)
_MODULES = ("random", "numpy.random")


def own_copy(obj: Any) -> Any:
    """Return a copy of an object that holds no others, and that is changed in C; None for any other."""
    numpy: Any = sys.modules.get("numpy.random")
    kinds = _COPIED if numpy is None else (*_COPIED, numpy.Generator, numpy.RandomState, numpy.BitGenerator)
    return copy.deepcopy(obj) if isinstance(obj, kinds) else None


def drawing_module(module: ModuleType, copied: Callable[[Any], Any]) -> ModuleType | None:
    """Return `random` or `numpy.random` whose functions draw from a copy of its generator; None for others.

    Other threads draw from the real one meanwhile.
    """
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and module is numpy:
        return _Seen(module, {"random": copied(numpy.random)}) if "numpy.random" in sys.modules else None
    if module.__name__ not in _MODULES or module is not sys.modules.get(module.__name__):
        return None
    kind = random.Random if module is random else module.RandomState
    found = {
        name: value
        for name, value in vars(module).items()
        if isinstance(getattr(value, "__self__", None), kind)
    }
    owner = copied(next(iter(found.values())).__self__)
    own = {name: getattr(owner, name) for name in (*found, "seed") if hasattr(owner, name)}
    return _Seen(module, own)


class _Seen(ModuleType):
    """A module with some other attributes."""

    def __init__(self, module: ModuleType, replaced: dict[str, Any]) -> None:
        super().__init__(module.__name__)
        self.__dict__["_module"] = module
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_module"], name)
