"""The user's functions, classes and modules, built anew over copies of the variables that they use."""

from __future__ import annotations

import builtins
import sys
import sysconfig
from enum import Enum
from functools import cache
from pathlib import Path
from types import CellType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from gpu_magic.frameworks.shadow.shown import BUILTINS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Code", "is_installed_file", "is_users_class", "is_users_file", "is_users_module"]

_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_OURS = str(Path(__file__).parent.parent.parent)
_MAIN = ("__main__", "__mp_main__")
# What classes have besides what their body says.
_MADE = ("__dict__", "__weakref__")
# How deep containers in closures are looked into for what is copied.
_DEPTH = 4


@cache
def is_users_file(name: str) -> bool:
    """Return whether code in a file is the user's own: a cell's, or of a module that is not installed."""
    if name.startswith(("<frozen", "<string", "<__array")):
        return False
    return not is_installed_file(name) and not name.startswith(_OURS)


@cache
def is_installed_file(name: str) -> bool:
    """Return whether code in a file is a library's, Python's own among them, and not ours."""
    is_there = {"site-packages", "dist-packages"} & set(Path(name).parts) or name.startswith(_LIBRARIES)
    return bool(is_there) and not name.startswith(_OURS)


def is_users_module(module: ModuleType) -> bool:
    """Return whether a module is the user's own, and not the notebook itself."""
    name = getattr(module, "__file__", None)
    return isinstance(name, str) and is_users_file(name)


def is_users_class(cls: type) -> bool:
    """Return whether a class is the user's own, and can be built anew: its methods then use the copies."""
    if cls.__module__ not in _MAIN:
        module = sys.modules.get(cls.__module__)
        if module is None or not is_users_module(module):
            return False
    return not issubclass(cls, Enum)


class Code:
    """Builds code anew.

    Parameters
    ----------
    copy
        Returns the copy of a value.
    remember
        Has all references to an object lead to its copy.

    """

    def __init__(self, copy: Callable[[Any], Any], remember: Callable[[Any, Any], Any]) -> None:
        self._copy, self._remember = copy, remember
        self._globals: dict[int, _Globals] = {}

    def globals_of(self, namespace: dict[str, Any]) -> dict[str, Any]:
        """Return a namespace whose values are copies of another's, made when they are asked for."""
        if isinstance(namespace, _Globals):
            return namespace
        found = self._globals.get(id(namespace))
        if found is None:
            found = self._globals[id(namespace)] = _Globals(namespace, self._copy)
        return found

    def close(self) -> None:
        """Let go of all namespaces, and of the copies in them."""
        for namespace in self._globals.values():
            namespace.clear()
        self._globals.clear()

    def function(self, function: FunctionType) -> Any:
        """Return a function over copies of its variables, or itself where there are none."""
        original = getattr(function, "_torchdynamo_orig_callable", None)
        if isinstance(original, FunctionType | MethodType):
            return self._copy(original)  # torch.compile has made it of that one
        own = _is_users(function)
        if not own and not _is_affected(function, _DEPTH):
            return function
        namespace = self.globals_of(function.__globals__) if own else function.__globals__
        cells = tuple(CellType() for _ in function.__closure__ or ())
        new = FunctionType(function.__code__, namespace, function.__name__, None, cells)
        self._remember(function, new)
        for cell, filled in zip(function.__closure__ or (), cells, strict=True):
            self._remember(cell, filled)
        for cell, filled in zip(function.__closure__ or (), cells, strict=True):
            self._fill(cell, filled)
        new.__defaults__ = self._copy(function.__defaults__)
        new.__kwdefaults__ = self._copy(function.__kwdefaults__)
        new.__qualname__, new.__module__ = function.__qualname__, function.__module__
        new.__dict__.update({name: self._copy(value) for name, value in function.__dict__.items()})
        return new

    def cell(self, cell: CellType) -> CellType:
        """Return a cell of a closure with a copy of what is in it."""
        new = self._remember(cell, CellType())
        self._fill(cell, new)
        return new  # type: ignore[no-any-return]

    def _fill(self, cell: CellType, new: CellType) -> None:
        try:
            new.cell_contents = self._copy(cell.cell_contents)
        except ValueError:  # it is empty
            return

    def class_(self, cls: type) -> type:
        """Return the user's class anew, so that its methods use copies; itself where that is not possible."""
        bases = tuple(self._copy(base) for base in cls.__bases__)
        # A method that says `super()` holds its class in a cell, which has to hold the new one.
        slots = cls.__dict__.get("__slots__", ())
        made = {*_MADE, *((slots,) if isinstance(slots, str) else slots)}
        body = {name: value for name, value in cls.__dict__.items() if name not in made}
        body.pop("__annotate_func__", None)
        try:
            new = type.__new__(type(cls), cls.__name__, bases, dict(body))
        except Exception:  # noqa: BLE001 - a metaclass, or a base's __init_subclass__, can refuse
            return self._remember(cls, cls)  # type: ignore[no-any-return]
        self._remember(cls, new)
        for name, value in body.items():
            copied = self._member(value)
            if copied is not value:
                type.__setattr__(new, name, copied)
        return new

    def _member(self, value: Any) -> Any:
        kind = type(value)
        if kind is property:
            return property(*(self._copy(one) for one in (value.fget, value.fset, value.fdel)))
        if kind is staticmethod or kind is classmethod:
            return kind(self._copy(value.__func__))
        return self._copy(value)

    def module(self, module: ModuleType) -> ModuleType:
        """Return a module of the user's whose attributes are copies."""
        return self._remember(module, _Module(module, self.globals_of(vars(module))))  # type: ignore[no-any-return]


class _Globals(dict[str, Any]):
    """A function's global variables: each is copied when it is first asked for.

    Python looks global variables up by `__missing__`, too, where they are not in a plain dict.
    """

    def __init__(self, namespace: dict[str, Any], copy: Callable[[Any], Any]) -> None:
        super().__init__(__name__=namespace.get("__name__"), __builtins__=_BUILTINS)
        self._namespace, self._copy = namespace, copy
        self._copying: set[str] = set()

    def __missing__(self, name: str) -> Any:
        value = self[name] = self._copy(self._namespace[name])
        return value


class _Module(ModuleType):
    """A module whose attributes are those of a namespace."""

    def __init__(self, module: ModuleType, namespace: dict[str, Any]) -> None:
        super().__init__(module.__name__, module.__doc__)
        self.__dict__["_namespace"] = namespace

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_namespace"][name]
        except KeyError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__["_namespace"][name] = value


def _is_users(function: FunctionType) -> bool:
    namespace = function.__globals__
    if isinstance(namespace, _Globals):
        return False
    name = namespace.get("__file__")
    if namespace.get("__name__") in _MAIN:
        return True
    return is_users_file(name) if isinstance(name, str) else is_users_file(function.__code__.co_filename)


def _is_affected(value: Any, depth: int) -> bool:
    """Return whether a value leads to what is copied: a model in a hook's closure, the user's function."""
    if type(value) is FunctionType:
        if _is_users(value):
            return True
        for cell in value.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:  # it is empty
                continue
            if depth and _is_affected(content, depth - 1):
                return True
        return False
    if type(value) in (list, tuple):
        return bool(depth) and any(_is_affected(one, depth - 1) for one in value[:100])
    if type(value) is MethodType:
        return True
    return not isinstance(value, _INERT) and hasattr(value, "__dict__")


# Python's own, except that nothing is printed.
_BUILTINS = {**vars(builtins), **BUILTINS}
_INERT = (str, bytes, int, float, complex, bool, type(None), type, ModuleType)
