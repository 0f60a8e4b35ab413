"""Which packages a piece of code evidently uses: by the names in it, and what they stand for."""

from __future__ import annotations

import ast
import re
import sys
from functools import cached_property
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from gpu_magic.frameworks import known

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["Evidence", "names_in", "packages"]

# Packages that define the types of another one's objects.
_HALVES = {"jaxlib": "jax", "tf_keras": "tensorflow"}
# Whether a package imports another, and how many modules were loaded when that was found.
_answers: dict[tuple[str, str], tuple[int, bool]] = {}
# The calls that IPython makes of magics, whose line and body are texts; and calls that import by name.
_MAGICS = ("run_cell_magic", "run_line_magic")
_IMPORTS = ("__import__", "import_module")
# The modules of the user's own code, which is looked into.
_OWN = ("__main__", "__mp_main__")


class Evidence:
    """The packages that code evidently uses, found when they are first asked for.

    Parameters
    ----------
    code
        The code of a function, or what returns a cell's text as Python.
    namespace
        Where its names are looked up.

    """

    def __init__(self, code: CodeType | Callable[[], str], namespace: Mapping[str, Any]) -> None:
        self._code, self._namespace = code, namespace

    @cached_property
    def _packages(self) -> set[str]:
        code = self._code if isinstance(self._code, CodeType) else self._code()
        return packages(names_in(code), self._namespace)

    def __contains__(self, package: object) -> bool:
        if package in self._packages:
            return True
        # A framework that refers to another does not use it; the user's own code is followed by its names.
        others = self._packages - set(known()) - set(_OWN)
        return any(_imports(other, package) for other in others)


def _imports(package: str, other: object) -> bool:
    """Return whether a package, as far as it is imported, refers to another one."""
    if str(other) not in sys.modules or package not in sys.modules or package in sys.stdlib_module_names:
        return False
    loaded, answer = _answers.get((package, str(other)), (0, False))
    if loaded != len(sys.modules):  # looking takes milliseconds where thousands of modules are loaded
        answer = _refers_to(package, str(other))
        _answers[package, str(other)] = len(sys.modules), answer
    return answer


def _refers_to(package: str, other: str) -> bool:
    target, start = sys.modules[other], f"{package}."
    for name, module in list(sys.modules.items()):
        if (name == package or name.startswith(start)) and isinstance(module, ModuleType):
            for value in list(vars(module).values()):
                if value is target or (
                    type(value) is ModuleType and _top(vars(value).get("__name__")) == other
                ):
                    return True
    return False


def names_in(code: str | CodeType) -> set[str]:
    """Return the names in code: those a cell reads or imports, those that a function looks up."""
    if isinstance(code, CodeType):
        found = {part for name in code.co_names for part in name.split(".")}  # `import torch.nn` is one name
        return found.union(*(names_in(inner) for inner in code.co_consts if isinstance(inner, CodeType)))
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return set(_words(code))
    found = set()
    for node in ast.walk(tree):
        names_of = _NAMES_OF.get(type(node))
        if names_of is not None:
            found.update(names_of(node))
    return found


def _names_of_name(node: ast.Name) -> Iterable[str]:
    return () if isinstance(node.ctx, ast.Store) else (node.id,)


def _names_of_import(node: ast.Import) -> Iterable[str]:
    return (_top(alias.name) for alias in node.names)


def _names_of_import_from(node: ast.ImportFrom) -> Iterable[str]:
    return (_top(node.module),)


def _names_of_call(node: ast.Call) -> Iterable[str]:
    """Return the names in the texts that a call is given, where it runs a magic or imports by name."""
    called = getattr(node.func, "id", getattr(node.func, "attr", ""))
    if called not in (*_MAGICS, *_IMPORTS):
        return ()
    texts = [str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)]
    return _words(" ".join(texts)) if called in _MAGICS else map(_top, texts)


# The nodes of a syntax tree that name something, and how they do.
_NAMES_OF: dict[type[ast.AST], Callable[[Any], Iterable[str]]] = {
    ast.Name: _names_of_name,
    ast.Import: _names_of_import,
    ast.ImportFrom: _names_of_import_from,
    ast.Call: _names_of_call,
}


def _words(text: str) -> list[str]:
    """Return all that could be a name in a text that is not Python."""
    return re.findall(r"[^\W\d]\w*", text)


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
    pending: list[tuple[Iterable[str], Mapping[str, Any]]] = [(names, namespace)]
    while pending:
        looked_up, where = pending.pop()
        for name in looked_up:
            found.add(name)
            if name not in where or id(where[name]) in seen:
                continue
            value = where[name]
            seen.add(id(value))
            for function in _look_at(value, found):
                if id(function.__code__) not in seen:
                    seen.add(id(function.__code__))
                    pending.append((names_in(function.__code__), function.__globals__))
    return found | {_HALVES[half] for half in found & _HALVES.keys()}


def _look_at(value: object, found: set[str]) -> list[FunctionType]:
    """Add the packages that a value comes from; return the user's own functions in it.

    No code of the value runs: it can be of any kind.
    """
    # Its type, and not isinstance, which asks the value for its __class__.
    if issubclass(type(value), ModuleType):
        found.add(_top(ModuleType.__getattribute__(value, "__dict__").get("__name__")))
        return []
    if type(value) is MethodType:
        value = value.__func__
    if type(value) is FunctionType:
        found.add(_top(value.__module__))
        # A decorated function is in the closure of its wrapper.
        inner = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        own = [
            function
            for function in inner
            if type(function) is FunctionType and _top(function.__module__) in _OWN
        ]
        return [value, *own] if _top(value.__module__) in _OWN else own
    cls: Any = value if issubclass(type(value), type) else type(value)
    found.update(_top(base.__module__) for base in cls.__mro__)
    attributes = (vars(base).values() for base in cls.__mro__ if base.__module__ in _OWN)
    return [value for values in attributes for value in values if isinstance(value, FunctionType)]


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _top(module: object) -> str:
    """Return the top-level package of a module's name; empty for what is not one."""
    return module.partition(".")[0] if isinstance(module, str) else ""
