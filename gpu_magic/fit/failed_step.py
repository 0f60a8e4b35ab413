"""What is told of a step that fails: why, and in which line; and the `%gpu_fit` line to type then."""

from __future__ import annotations

import ast
import builtins
import contextlib
import linecache
import sys
import sysconfig
import traceback
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import FitError, causes
from gpu_magic.frameworks.private import private
from gpu_magic.process.namespace import parse_expression
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

__all__ = ["Unfollowed", "fit_line", "is_users_file", "one_line"]

_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_OURS = str(Path(__file__).parent.parent)
_NO_DATA = {
    "DataDependentOutputException": "it needs what a tensor holds",
    "DynamicOutputShapeException": "the shape of what {op} returns depends on data",
    "UnsupportedOperatorException": "{op} is not known without data",
}


class Unfollowed(Exception):  # noqa: N818 - it becomes a FitError
    """A step cannot be followed without data; the message is a clause that says why."""


@cache
def is_users_file(name: str) -> bool:
    """Return whether code in a file is the user's own: of a cell, or of a module that is not installed."""
    is_installed = {"site-packages", "dist-packages"} & set(Path(name).parts) or name.startswith(_LIBRARIES)
    return not (is_installed or name.startswith((_OURS, "<frozen", "<string", "<__array")))


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """Raise what goes wrong in a block as a FitError that names the line of the user's code."""
    try:
        yield
    except (KeyboardInterrupt, FitError):
        raise
    except BaseException as error:  # noqa: BLE001 - whatever the user's step raises: SystemExit, too
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
        for one in causes(error):  # their frames hold the step's tensors
            one.__traceback__ = one.__context__ = None
        raise FitError(told if own else f"{told}.") from None


def fit_line(error: BaseException, namespace: Mapping[str, Any]) -> str:
    """Return the line that predicts the memory of the call in which a model of PyTorch failed.

    Parameters
    ----------
    error
        The error, with its traceback.
    namespace
        The variables of the notebook, which are its cells' globals.

    Returns
    -------
    str
        `%gpu_fit model optimizer batch` if the cell itself calls the model, `%gpu_fit train_step(batch)` if a
        function does. Empty if no model was called, or the call cannot be named.

    """
    call_of_models = private("torch.nn:Module._wrapped_call_impl")
    for cause in causes(error) if call_of_models else ():
        cell, is_users = None, False
        trace = cause.__traceback__
        while trace is not None:
            frame = trace.tb_frame
            if frame.f_globals is namespace and frame.f_code.co_name == "<module>":
                cell, is_users = trace, False
            elif cell is not None and frame.f_code is call_of_models.__code__:
                # What a library calls a model for cannot be asked: a backward that computes it again.
                is_direct = cell.tb_next is trace
                call = _call_at(cell, namespace) if is_direct or is_users else None
                model = frame.f_locals.get("self") if is_direct else None
                return "" if call is None else f"%gpu_fit {_typed(call, model, namespace)}"
            elif cell is not None:
                is_users = is_users or is_users_file(frame.f_code.co_filename)
            trace = trace.tb_next
    return ""


def _call_at(trace: TracebackType, namespace: Mapping[str, Any]) -> ast.Call | None:
    """Return the call that a cell was making; None if it made none, or one that names what is no variable."""
    (at,) = traceback.extract_tb(trace, limit=1)
    lines = [line.encode() for line in linecache.getlines(at.filename)[(at.lineno or 0) - 1 : at.end_lineno]]
    if at.colno is None or at.end_colno is None or not lines:
        return None
    lines[-1] = lines[-1][: at.end_colno]  # columns count bytes
    lines[0] = lines[0][at.colno :]
    node = parse_expression(f"({b''.join(lines).decode()})")
    names = {inner.id for inner in ast.walk(node or ast.Pass()) if isinstance(inner, ast.Name)}
    is_known = names <= namespace.keys() | vars(builtins).keys()
    return node if isinstance(node, ast.Call) and is_known else None


def _typed(call: ast.Call, model: Any, namespace: Mapping[str, Any]) -> str:
    """Return a call of a function as it is; one of a model as `model optimizer batch`."""
    given = [*call.args, *(word.value for word in call.keywords if word.arg is None)]  # `**batch` as well
    is_one = len(given) == 1 == len(call.args) + len(call.keywords)
    is_plain = not any(
        isinstance(inner, ast.Call | ast.Await) for node in (call.func, *given) for inner in ast.walk(node)
    )
    is_named = all(isinstance(node, ast.Name | ast.Attribute | ast.Subscript) for node in (call.func, *given))
    if model is None or not (is_one and is_plain and is_named):
        return ast.unparse(call)
    words = [ast.unparse(call.func), ast.unparse(given[0])]
    if not model.training:
        return f"{words[0]} {words[1]} --eval"
    own = {id(parameter) for parameter in model.parameters()}
    optimizers = {
        id(value): name
        for name, value in list(namespace.items())
        if not name.startswith("_")
        and isinstance(value, sys.modules["torch"].optim.Optimizer)
        and any(id(one) in own for group in value.param_groups for one in group["params"])
    }
    if len(optimizers) == 1:  # of several it is not known which one
        words[1:1] = optimizers.values()
    return " ".join(words)
