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

# A package's other half, whose types its users' variables have.
_HALVES = {"jaxlib": "jax", "tf_keras": "tensorflow"}
# Whether a package imports another, and how many modules were loaded when that was found.
_answers: dict[tuple[str, str], tuple[int, bool]] = {}
# What IPython makes of a magic, and the calls that import by name.
_MAGICS = ("run_cell_magic", "run_line_magic")
_IMPORTS = ("__import__", "import_module")
# Code of the user's own, which is looked into.
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
        through = self._packages - set(known()) - set(_OWN)
        return any(_imports(one, package) for one in through)


def _imports(package: str, other: object) -> bool:
    """Tell whether a package, as far as it is imported, has another one in hand."""
    if str(other) not in sys.modules or package not in sys.modules or package in sys.stdlib_module_names:
        return False
    loaded, answer = _answers.get((package, str(other)), (0, False))
    if loaded != len(sys.modules):  # looking takes milliseconds where thousands of modules are loaded
        answer = _has_in_hand(package, str(other))
        _answers[package, str(other)] = len(sys.modules), answer
    return answer


def _has_in_hand(package: str, other: str) -> bool:
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
        return set(re.findall(r"[^\W\d]\w*", code))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _MAGICS:
            # The body of another magic, or a line of one, is a text here.
            texts = [one.value for one in node.args if isinstance(one, ast.Constant)]
            found.update(re.findall(r"[^\W\d]\w*", " ".join(map(str, texts))))
        elif (
            isinstance(node, ast.Call)
            and getattr(node.func, "id", getattr(node.func, "attr", "")) in _IMPORTS
        ):
            found.update(
                str(one.value).partition(".")[0] for one in node.args if isinstance(one, ast.Constant)
            )
    return found


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
        # Behind a decorator, the function itself stands in the wrapper's closure.
        inner = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        own = [one for one in inner if type(one) is FunctionType and _top(one.__module__) in _OWN]
        return [value, *own] if _top(value.__module__) in _OWN else own
    kind: Any = value if issubclass(type(value), type) else type(value)
    found.update(_top(base.__module__) for base in kind.__mro__)
    mine = (vars(base).values() for base in kind.__mro__ if base.__module__ in _OWN)
    return [one for values in mine for one in values if isinstance(one, FunctionType)]


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _top(module: object) -> str:
    return module.partition(".")[0] if isinstance(module, str) else ""
