"""Finds the packages that code uses: the names that it looks up, compared with the imported modules.

This is evidence, not proof. A framework that is not found still uses the block's device, or raises an error.
"""

from __future__ import annotations

import contextlib
import dis
import re
import sys
from collections import ChainMap
from functools import cached_property, lru_cache
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from gpu_magic.frameworks import KNOWN, is_importing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["Evidence"]

_LOOK_UP = ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_FROM_DICT_OR_GLOBALS", "IMPORT_NAME")
# Calls whose arguments are names or code in strings.
_BY_STRING = {"run_cell_magic", "run_line_magic", "import_module", "__import__", "getattr"}
_OWN = ("__main__", "__mp_main__")  # the modules of the user's own code, which is searched
# Packages that define the types of another package's objects.
_HALVES = {"jaxlib": "jax", "tf_keras": "tensorflow"}
_WRAPPERS = {classmethod: "__func__", staticmethod: "__func__", property: "fget", cached_property: "func"}


class Evidence:
    """The packages that code uses, found on demand. `namespace` has the variables of the code."""

    def __init__(self, code: Callable[[], Iterable[CodeType]], namespace: Mapping[str, Any]) -> None:
        self._code, self._namespace = code, namespace

    def __contains__(self, package: str) -> bool:
        if package in self._packages:
            return True
        # A framework that refers to another one need not use it. gpu_magic refers to all frameworks.
        others = self._packages - {*KNOWN, *_OWN, *sys.stdlib_module_names, "gpu_magic"}
        return package in sys.modules and any(
            _refers_to(other, package, len(sys.modules), is_whole=not is_importing(other)) for other in others
        )

    def has_named(self, package: str) -> bool:
        """Return whether the code itself names a package, or an object of it."""
        return package in self._packages

    def has_text(self, text: str) -> bool:
        """Return whether the code has a text as a constant: the "cuda:0" of `x.to("cuda:0")`."""
        return any(text in _constants_of(code) for code in self._code())

    @cached_property
    def _packages(self) -> set[str]:
        found: set[str] = set()
        pending = [(code, self._namespace) for code in self._code()]
        seen: set[int] = set()
        while pending:
            code, namespace = pending.pop()
            names = _names_in(code)
            found |= names
            for value in (namespace[name] for name in names if name in namespace):
                packages, functions = _origin(value)
                found |= packages
                new = [function for function in functions if id(function.__code__) not in seen]
                seen.update(id(function.__code__) for function in new)
                pending += [(function.__code__, _variables(function)) for function in new]
        return found | {_HALVES[half] for half in found & _HALVES.keys()}


@lru_cache(maxsize=500)
def _names_in(code: CodeType) -> frozenset[str]:
    """Return the names that code looks up or imports, including its functions and classes."""
    names = {
        str(step.argval).partition(".")[0] for step in dis.get_instructions(code) if step.opname in _LOOK_UP
    }
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names_in(constant)
        elif isinstance(constant, str) and not _BY_STRING.isdisjoint(code.co_names):
            names.update(re.findall(r"[^\W\d]\w*", constant))
    return frozenset(names)


def _constants_of(code: CodeType) -> Iterator[object]:
    for constant in code.co_consts:
        yield from _constants_of(constant) if isinstance(constant, CodeType) else (constant,)


def _origin(value: Any) -> tuple[set[str], list[FunctionType]]:
    """Return the packages of a value, and the user's own functions in it, without running its code."""
    kind = type(value)
    if issubclass(kind, ModuleType):
        return {_top(ModuleType.__getattribute__(value, "__dict__").get("__name__"))}, []
    if kind is MethodType:
        value = value.__func__
    if type(value) is FunctionType:
        return {_top(value.__module__)}, [value] if value.__module__ in _OWN else []
    bases = (value if issubclass(kind, type) else kind).__mro__
    parts = [part for base in bases if base.__module__ in _OWN for part in list(vars(base).values())]
    parts = [getattr(part, _WRAPPERS[type(part)]) if type(part) in _WRAPPERS else part for part in parts]
    return {_top(base.__module__) for base in bases}, [part for part in parts if type(part) is FunctionType]


def _variables(function: FunctionType) -> Mapping[str, Any]:
    """Return the variables that a function can read: its closure, and the globals of its module."""
    around = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # an empty cell
            around[name] = cell.cell_contents
    return ChainMap(around, function.__globals__)


@lru_cache(maxsize=500)
def _refers_to(package: str, other: str, loaded: int, *, is_whole: bool) -> bool:
    """Return whether a variable of an imported package is another package.

    `loaded` and `is_whole` are only cache keys, because the answer can change with more loaded modules, or
    when the package's own import ends.
    """
    del loaded, is_whole
    target = sys.modules[other]
    # A copy, because another thread can import meanwhile. `dict.copy` is atomic.
    return any(
        value is target or (type(value) is ModuleType and _top(vars(value).get("__name__")) == other)
        for name, module in sys.modules.copy().items()
        if _top(name) == package and isinstance(module, ModuleType)
        for value in list(vars(module).values())
    )


def _top(module: object) -> str:
    """Return the top-level package of a module's name. Empty for an object that is not a str."""
    return module.partition(".")[0] if isinstance(module, str) else ""
