"""Copies the user's functions for a step together with all that they use, and names the line that fails."""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import linecache
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import FitError, causes
from gpu_magic.objects.namespace import is_installed, parse_expression, variables_of
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Functions", "Unfollowed", "fit_line", "is_users_file", "one_line", "tensors_in"]

_NOT_THEIRS = (str(Path(__file__).parent.parent), "<frozen", "<string", "<__array")
_NOT_COPIED = {"builtins.type", "builtins.module", "torch.utils.data.dataset.Dataset", "numpy.ndarray"}
_NAMED = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.expr_context)
_NO_DATA = {
    "DataDependentOutputException": "it needs what a tensor holds",
    "DynamicOutputShapeException": "the shape of what {op} returns depends on data",
    "UnsupportedOperatorException": "the result of {op} depends on data",
}


class Unfollowed(Exception):  # noqa: N818 - it becomes a FitError
    """A step cannot be predicted without data. The message is a clause with the reason."""


def is_users_file(name: str) -> bool:
    """Return whether a file has the user's own code: a cell, or a module that is not installed."""
    return not (is_installed(name) or name.startswith(_NOT_THEIRS))


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """Convert each error in a block to a FitError that names the line of the user's code."""
    try:
        yield
    except (KeyboardInterrupt, FitError):
        raise
    except BaseException as error:  # noqa: BLE001 - the user's step can raise anything, for example SystemExit
        op = str(getattr(error, "func", "")).removeprefix("aten.").partition(".")[0]
        text = shortened(" ".join(str(error).split()), 200).rstrip(".")
        why = _NO_DATA.get(type(error).__name__, text if isinstance(error, Unfollowed) else "")
        if why:
            told = f"The step cannot be predicted: {why.format(op=f'{op}()')}"
        else:
            told = f"The step raises {type(error).__name__}{f': {text}' if text else ''}"
        own = [
            one for one in traceback.walk_tb(error.__traceback__) if is_users_file(one[0].f_code.co_filename)
        ]
        if own:
            frame, number = own[-1]
            line = linecache.getline(frame.f_code.co_filename, number, frame.f_globals).strip()
            told += f", in line {number} of {frame.f_code.co_name}: {shortened(line, 200)}"
        for one in causes(error):  # the frames would keep the step's tensors
            one.__traceback__ = one.__context__ = None
        raise FitError(told if own else f"{told}.") from None


class Functions:
    """Rebuilds each function once, with copies of the objects that it uses. `copy` copies an object."""

    def __init__(self, copy: Callable[[Any], Any]) -> None:
        self._copy = copy
        self._made: dict[int, Any] = {}  # by the id of a function, a cell or globals

    def copied(self, value: Any) -> Any:
        """Copy an object or a function. Return the object itself if it cannot be copied or loads data."""
        if isinstance(value, MethodType):
            return MethodType(self.copied(value.__func__), self.copied(value.__self__))
        if isinstance(value, functools.partial):
            args, kwargs = self._copy((value.args, value.keywords))
            return functools.partial(self.copied(value.func), *args, **kwargs)
        if isinstance(value, FunctionType):
            return self._function(value)
        if not _NOT_COPIED & {f"{kind.__module__}.{kind.__name__}" for kind in type(value).__mro__}:
            with contextlib.suppress(Exception):
                return self._copy(value)
        return value

    def _function(self, function: FunctionType) -> Any:
        is_users, old = is_users_file(function.__code__.co_filename), function.__globals__
        if id(function) in self._made or not (is_users or function.__closure__):  # decorators have a closure
            return self._made.get(id(function), function)
        names = self._made.setdefault(id(old), dict(old)) if is_users else old
        cells = function.__closure__ or ()
        for cell in cells:
            if id(cell) not in self._made:
                new_cell = self._made[id(cell)] = CellType()
                with contextlib.suppress(ValueError):  # an empty cell
                    new_cell.cell_contents = self.copied(cell.cell_contents)
        cells = tuple(self._made[id(cell)] for cell in cells)
        new = self._made[id(function)] = FunctionType(
            function.__code__, names, function.__name__, None, cells
        )
        new.__defaults__, new.__kwdefaults__ = self.copied((function.__defaults__, function.__kwdefaults__))
        for name in _names(function.__code__) if is_users else ():
            if name in names and names[name] is old.get(name):
                names[name] = self.copied(names[name])
        return new


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that code and the code within it can read as globals."""
    yield from code.co_names
    for inner in code.co_consts:
        yield from _names(inner) if isinstance(inner, CodeType) else ()


def fit_line(error: BaseException, namespace: Mapping[str, Any]) -> str:
    """Return the `%gpu_fit` line for the call of a cell in which a PyTorch model failed. Empty for none.

    The cell calls the model, or a function that calls the model. `namespace` has the globals of cells.
    """
    module: Any = getattr(sys.modules.get("torch.nn"), "Module", None)
    for cause in causes(error) if module else ():
        frames = [frame for frame, _ in traceback.walk_tb(cause.__traceback__)]
        called = next((at for at, one in enumerate(frames) if one.f_code is module.__call__.__code__), 0)
        for at, cell in reversed([*enumerate(frames[:called])]):
            if cell.f_locals is namespace:
                between = frames[at + 1 : called]
                if between and not any(is_users_file(one.f_code.co_filename) for one in between):
                    return ""  # a library calls the model, for example to recompute it in a backward
                model = None if between else frames[called].f_locals.get("self")
                return _typed(traceback.extract_tb(cause.__traceback__)[at], model, namespace)
    return ""


def _typed(at: traceback.FrameSummary, model: Any, namespace: Mapping[str, Any]) -> str:
    """Return the line for a call in a cell: `model optimizer batch` if it calls a model, else the call."""
    place: Any = SimpleNamespace(lineno=at.lineno, end_lineno=at.end_lineno)
    place.col_offset, place.end_col_offset = at.colno, at.end_colno
    source = "".join(linecache.getlines(at.filename))
    call = parse_expression(f"({ast.get_source_segment(source, place) if source else None})")
    names = {one.id for one in ast.walk(call or ast.Pass()) if isinstance(one, ast.Name)}
    if not isinstance(call, ast.Call) or not names <= namespace.keys() | vars(builtins).keys():
        return ""
    words = [call.func, *call.args, *(one.value for one in call.keywords if one.arg is None)]  # and `**batch`
    is_named = all(isinstance(one, _NAMED) for word in words for one in ast.walk(word))
    if model is None or not is_named or not len(words) - 1 == 1 == len(call.args) + len(call.keywords):
        return f"%gpu_fit {ast.unparse(call)}"
    name, batch = map(ast.unparse, words)
    if not model.training:
        return f"%gpu_fit {name} {batch} --eval"
    own, kind = set(map(id, model.parameters())), sys.modules["torch"].optim.Optimizer
    for variable, value in variables_of(namespace, ()).items():
        groups = value.param_groups if isinstance(value, kind) else ()
        if any(id(one) in own for group in groups for one in group["params"]):
            return f"%gpu_fit {name} {variable} {batch}"
    return f"%gpu_fit {name} {batch}"


def tensors_in(value: Any, seen: set[int] | None = None) -> list[Any]:
    """Return the tensors in containers and objects, except those of models and optimizers."""
    torch: Any = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        return [value]
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, type | torch.nn.Module | torch.optim.Optimizer):
        return []
    seen.add(id(value))
    inner = value if isinstance(value, tuple | list) else getattr(value, "__dict__", {}).values()
    inner = value.values() if isinstance(value, Mapping) else inner
    return [one for part in inner for one in tensors_in(part, seen)]
