"""Which packages a piece of code evidently uses: by the names in it, and what they stand for."""

from __future__ import annotations

import re
from functools import cached_property
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Evidence", "names_in", "packages"]

# A package's other half, whose types its users' variables have.
_HALVES = {"jaxlib": "jax", "tf_keras": "tensorflow"}
# Code of the user's own, which is looked into.
_OWN = ("__main__", "builtins")


class Evidence:
    """The packages that code evidently uses, found when they are first asked for.

    Parameters
    ----------
    code
        A cell's text, or the code of a function.
    namespace
        Where its names are looked up.

    """

    def __init__(self, code: str | CodeType, namespace: Mapping[str, Any]) -> None:
        self._code, self._namespace = code, namespace

    @cached_property
    def _packages(self) -> set[str]:
        return packages(names_in(self._code), self._namespace)

    def __contains__(self, package: object) -> bool:
        return package in self._packages


def names_in(code: str | CodeType) -> set[str]:
    """Return the names in code: all words of a text outside comments, those that a function looks up."""
    if isinstance(code, str):
        return set(re.findall(r"[^\W\d]\w*", re.sub(r"#.*", "", code)))
    found = {part for name in code.co_names for part in name.split(".")}  # `import torch.nn` is one name
    return found.union(*(names_in(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def packages(names: Iterable[str], namespace: Mapping[str, Any]) -> set[str]:
    """Return the top-level packages that names stand for, through the user's own functions and classes.

    Parameters
    ----------
    names
        As `names_in` gives them. Each counts as a package itself, too: the code can import it.
    namespace
        What they are looked up in.

    """
    found: set[str] = set()
    seen: set[int] = set()
    open_: list[tuple[Iterable[str], Mapping[str, Any]]] = [(names, namespace)]
    while open_:
        some, space = open_.pop()
        for name in some:
            found.add(name)
            if name not in space or id(space[name]) in seen:
                continue
            value = space[name]
            seen.add(id(value))
            for function in _look_at(value, found):
                if id(function.__code__) not in seen:
                    seen.add(id(function.__code__))
                    open_.append((names_in(function.__code__), function.__globals__))
    return found | {_HALVES[half] for half in found & _HALVES.keys()}


def _look_at(value: object, found: set[str]) -> list[FunctionType]:
    """Add the packages that a value comes from; return the user's own functions in it.

    The value itself is asked nothing: it can be anything.
    """
    # Its type, and not isinstance, which asks the value for its __class__.
    if issubclass(type(value), ModuleType):
        found.add(_top(ModuleType.__getattribute__(value, "__dict__").get("__name__")))
        return []
    if type(value) is MethodType:
        value = value.__func__
    if type(value) is FunctionType:
        found.add(_top(value.__module__))
        return [value] if _top(value.__module__) in _OWN else []
    kind: Any = value if issubclass(type(value), type) else type(value)
    found.update(_top(base.__module__) for base in kind.__mro__)
    own = [base for base in kind.__mro__ if base.__module__ == "__main__"]
    return [one for base in own for one in vars(base).values() if isinstance(one, FunctionType)]


def _top(module: object) -> str:
    return module.partition(".")[0] if isinstance(module, str) else ""
