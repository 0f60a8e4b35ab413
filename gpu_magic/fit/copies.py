"""Functions of the user's over copies of what they use: the notebook's own variables are not touched."""

from __future__ import annotations

import contextlib
import functools
import sys
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from gpu_magic.fit.failed_step import is_users_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Functions"]


class Functions:
    """Builds functions anew, each once.

    Parameters
    ----------
    copy
        Returns the copy of an object.

    """

    def __init__(self, copy: Callable[[Any], Any]) -> None:
        self._copy = copy
        self._made: dict[int, Any] = {}
        self._namespaces: dict[int, dict[str, Any]] = {}

    def copied(self, value: Any) -> Any:
        """Return the copy of an object or a function; itself if it cannot be copied, or only loads data."""
        if isinstance(value, MethodType):
            return MethodType(self.copied(value.__func__), self.copied(value.__self__))
        if isinstance(value, functools.partial):
            return functools.partial(
                self.copied(value.func), *self._copy(value.args), **self._copy(value.keywords)
            )
        if type(value).__name__ == "OptimizedModule":  # of torch.compile
            return self.copied(value._orig_mod)  # noqa: SLF001
        if isinstance(value, FunctionType):  # or what torch.compile was given
            return self._function(getattr(value, "_torchdynamo_orig_callable", value))
        data = (
            getattr(sys.modules.get("torch.utils.data"), "Dataset", ()),
            getattr(sys.modules.get("numpy"), "ndarray", ()),
        )
        if not isinstance(value, (type, ModuleType, *filter(None, data))):
            with contextlib.suppress(Exception):
                return self._copy(value)
        return value

    def _function(self, function: FunctionType) -> FunctionType:
        is_users, names = is_users_file(function.__code__.co_filename), function.__globals__
        if not (is_users or function.__closure__):  # a decorator of a library's has a closure
            return function
        if id(function) in self._made:
            found: FunctionType = self._made[id(function)]
            return found
        if is_users:
            names = self._namespaces.setdefault(id(names), dict(names))
        cells = tuple(self._cell(cell) for cell in function.__closure__ or ())
        new = self._made[id(function)] = FunctionType(
            function.__code__, names, function.__name__, None, cells
        )
        new.__defaults__, new.__kwdefaults__ = self.copied((function.__defaults__, function.__kwdefaults__))
        for name in _names(function.__code__) if is_users else ():
            if name in names and names[name] is function.__globals__.get(name):
                names[name] = self.copied(names[name])
        return new

    def _cell(self, cell: CellType) -> CellType:
        if id(cell) not in self._made:
            new = self._made[id(cell)] = CellType()
            with contextlib.suppress(ValueError):  # it is empty
                new.cell_contents = self.copied(cell.cell_contents)
        found: CellType = self._made[id(cell)]
        return found


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that code and the code within it can read as globals."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
