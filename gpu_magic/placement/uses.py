"""Which packages a piece of code evidently uses: by the names in it, and what they stand for."""

from __future__ import annotations

import ast
import re
import sys
from functools import cached_property
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.frameworks import known

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["Evidence", "Names", "names_in", "packages"]

# Packages that define the types of another one's objects.
_HALVES = {"jaxlib": "jax", "tf_keras": "tensorflow"}
# Whether a package imports another, and how many modules were loaded when that was found.
_answers: dict[tuple[str, str], tuple[int, bool]] = {}
# The calls that IPython makes of magics, whose line and body are texts; and calls that import by name.
_MAGICS = ("run_cell_magic", "run_line_magic")
_IMPORTS = ("__import__", "import_module")
# Calls that read an attribute by its name in a text.
_GETTERS = ("getattr", "methodcaller")
# The modules of the user's own code, which is looked into.
_OWN = ("__main__", "__mp_main__")
# Modules of base classes that call no method of a class derived from them, but for the language's own.
_PASSIVE = (*_OWN, "abc", "builtins", "typing")
# The methods that make an object: for one that is there already they have run.
_MAKING = ("__init__", "__new__", "__post_init__")


class Names(NamedTuple):
    """The names in code.

    Parameters
    ----------
    variables
        Those that it looks up, or imports.
    attributes
        Those that it reads from objects. In a function's code the two can't be told apart.

    """

    variables: set[str]
    attributes: set[str]


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
        if not getattr(getattr(sys.modules[package], "__spec__", None), "_initializing", False):
            _answers[package, str(other)] = len(sys.modules), answer
    return answer


def _refers_to(package: str, other: str) -> bool:
    target, start = sys.modules[other], f"{package}."
    # A copy is made at once; list() makes a tuple for each item, and meanwhile another thread can import.
    for name, module in sys.modules.copy().items():
        if (name == package or name.startswith(start)) and isinstance(module, ModuleType):
            for value in list(vars(module).values()):
                if value is target or (
                    type(value) is ModuleType and _top(vars(value).get("__name__")) == other
                ):
                    return True
    return False


def names_in(code: str | CodeType) -> Names:
    """Return the names in code: those a cell reads or imports, those that a function looks up."""
    if isinstance(code, CodeType):
        names = set(_names_in_function(code))
        return Names(names, names)
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # it is no Python, or has very many levels
        words = set(_words(code))
        return Names(words, words)
    variables: set[str] = set()
    attributes: set[str] = set()
    for node in ast.walk(tree):
        if type(node) is ast.Attribute:
            attributes.add(node.attr)
            continue
        names_of = _NAMES_OF.get(type(node))
        if names_of is not None:
            variables.update(names_of(node))
        if type(node) is ast.Call and _called(node) in _GETTERS:
            attributes.update(_texts_in(node))
    return Names(variables, attributes)


def _names_in_function(code: CodeType) -> Iterator[str]:
    for name in code.co_names:
        yield from name.split(".")  # `import torch.nn` is one name
    reads_by_name = not set(_GETTERS).isdisjoint(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in_function(constant)
        elif reads_by_name and isinstance(constant, str):
            yield constant


def _names_of_name(node: ast.Name) -> Iterable[str]:
    return () if isinstance(node.ctx, ast.Store) else (node.id,)


def _names_of_import(node: ast.Import) -> Iterable[str]:
    return (_top(alias.name) for alias in node.names)


def _names_of_import_from(node: ast.ImportFrom) -> Iterable[str]:
    return (_top(node.module),)


def _names_of_call(node: ast.Call) -> Iterable[str]:
    """Return the names in the texts that a call is given, where it runs a magic or imports by name."""
    called = _called(node)
    if called in _MAGICS:
        return _words(" ".join(_texts_in(node)))
    return map(_top, _texts_in(node)) if called in _IMPORTS else ()


def _called(node: ast.Call) -> str:
    """Return the last name of what is called."""
    return str(getattr(node.func, "id", getattr(node.func, "attr", "")))


def _texts_in(node: ast.Call) -> list[str]:
    return [str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)]


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


def packages(names: Names, namespace: Mapping[str, Any]) -> set[str]:
    """Return the top-level packages that names stand for, through the user's own functions and classes.

    Of the methods of an own class those count that the code can reach: the name of one is read from an object
    somewhere in it, the language calls it, or a base class from another package can.

    Parameters
    ----------
    names
        As `names_in` gives them. Each variable counts as a package itself, too: the code can import it.
    namespace
        What they are looked up in.

    """
    search = _Search()
    search.add(names, namespace)
    found = search.run()
    return found | {_HALVES[half] for half in found & _HALVES.keys()}


class _Search:
    """Follows the names in code to the packages that they come from, into the user's own code."""

    def __init__(self) -> None:
        self._found: set[str] = set()
        self._seen: set[int] = set()
        self._pending: list[tuple[Names, Mapping[str, Any]]] = []
        self._attributes: set[str] = set()  # all that are read in the code so far
        self._unreached: dict[str, list[FunctionType]] = {}  # methods, by the names that nobody has read yet

    def add(self, names: Names, namespace: Mapping[str, Any]) -> None:
        self._pending.append((names, namespace))

    def run(self) -> set[str]:
        while self._pending:
            names, namespace = self._pending.pop()
            for name in names.variables:
                self._found.add(name)
                if name in namespace and id(namespace[name]) not in self._seen:
                    self._seen.add(id(namespace[name]))
                    self._look_at(namespace[name])
            new = names.attributes - self._attributes
            self._attributes |= new
            for name in self._unreached.keys() & new:
                for function in self._unreached.pop(name):
                    self._follow(function)
        return self._found

    def _look_at(self, value: object) -> None:
        """Add the packages that a value comes from, and follow the user's own functions in it.

        No code of the value runs: it can be of any kind.
        """
        # Its type, and not isinstance, which asks the value for its __class__.
        if issubclass(type(value), ModuleType):
            self._found.add(_top(ModuleType.__getattribute__(value, "__dict__").get("__name__")))
            return
        if type(value) is MethodType:
            value = value.__func__
        if type(value) is FunctionType:
            self._found.add(_top(value.__module__))
            self._follow(value)
            return
        is_class = issubclass(type(value), type)
        cls: Any = value if is_class else type(value)
        self._found.update(_top(base.__module__) for base in cls.__mro__)
        can_be_called = any(_top(base.__module__) not in _PASSIVE for base in cls.__mro__)
        for base in cls.__mro__:
            if base.__module__ in _OWN:
                for name, attribute in vars(base).copy().items():
                    is_special = name.startswith("__") and (is_class or name not in _MAKING)
                    self._add_method(name, attribute, is_called=can_be_called or is_special)

    def _add_method(self, name: str, attribute: object, *, is_called: bool) -> None:
        for function in _functions_of(attribute):
            if is_called or name in self._attributes:
                self._follow(function)
            else:
                self._unreached.setdefault(name, []).append(function)

    def _follow(self, function: FunctionType) -> None:
        """Look into a function of the user's own, and into those that it wraps."""
        # A decorated function is in the closure of its wrapper.
        inner = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
        for one in (function, *(value for value in inner if type(value) is FunctionType)):
            if _top(one.__module__) in _OWN and id(one.__code__) not in self._seen:
                self._seen.add(id(one.__code__))
                self._pending.append((names_in(one.__code__), one.__globals__))


def _functions_of(attribute: object) -> list[FunctionType]:
    """Return the functions that an attribute of a class is made of."""
    if type(attribute) in (classmethod, staticmethod):
        found: tuple[object, ...] = (attribute.__func__,)  # type: ignore[attr-defined]
    elif type(attribute) is property:
        found = attribute.fget, attribute.fset, attribute.fdel
    elif type(attribute) is cached_property:
        found = (attribute.func,)
    else:
        found = (attribute,)
    return [function for function in found if type(function) is FunctionType]


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _top(module: object) -> str:
    """Return the top-level package of a module's name; empty for what is not one."""
    return module.partition(".")[0] if isinstance(module, str) else ""
