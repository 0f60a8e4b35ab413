"""Builds the `%gpu_fit` line for a call in a cell that an error has ended, without running anything."""

from __future__ import annotations

import ast
import builtins
import linecache
import traceback
from collections import deque
from typing import TYPE_CHECKING, Any

from gpu_magic.frameworks import imported
from gpu_magic.frameworks.shadow.code import is_users_file
from gpu_magic.moving.names import parse_expression

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from gpu_magic.frameworks.base import Framework
    from gpu_magic.frameworks.prediction import ModelCall

__all__ = ["causes", "fit_line"]

_MOST_CAUSES = 20


def fit_line(error: BaseException, namespace: Mapping[str, Any]) -> str:
    """Return the line that predicts the memory of the call in which a model failed.

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
        function does. Empty if no model was called, or the call can't be named.

    """
    for cause in causes(error):
        trace, cell, is_users = cause.__traceback__, None, False
        while trace is not None:
            frame = trace.tb_frame
            if frame.f_globals is namespace and frame.f_code.co_name == "<module>":
                cell, is_users = trace, False
            elif cell is not None:
                for framework in imported():
                    if (called := framework.model_call(frame)) is None:
                        continue
                    is_direct = cell.tb_next is trace
                    # What a library calls a model for can't be asked: a `backward` that computes it again.
                    call = _call_at(cell, namespace) if is_direct or is_users else None
                    if call is None:
                        return ""
                    return _line(framework, call, called if is_direct else None, namespace)
                is_users = is_users or is_users_file(frame.f_code.co_filename)
            trace = trace.tb_next
    return ""


def _call_at(trace: TracebackType, namespace: Mapping[str, Any]) -> ast.Call | None:
    """Return the call that a cell was making; None if it made none, or one that names what is no variable."""
    (at,) = traceback.extract_tb(trace, limit=1)
    typed = linecache.getlines(at.filename)[(at.lineno or 0) - 1 : at.end_lineno]
    if at.colno is None or at.end_colno is None or not typed:
        return None
    lines = [line.encode() for line in typed]  # columns count bytes
    lines[-1] = lines[-1][: at.end_colno]
    lines[0] = lines[0][at.colno :]
    node = parse_expression(f"({b''.join(lines).decode()})")
    if not isinstance(node, ast.Call):
        return None
    names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return node if names <= namespace.keys() | vars(builtins).keys() else None


def _line(
    framework: Framework, call: ast.Call, direct: ModelCall | None, namespace: Mapping[str, Any]
) -> str:
    given = [*call.args, *(word.value for word in call.keywords if word.arg is None)]  # `**batch` as well
    is_one = len(given) == 1 == len(call.args) + len(call.keywords)
    if direct is None or not is_one or not all(map(_is_plain, [call.func, *given])):
        return f"%gpu_fit {ast.unparse(call)}"
    words = [ast.unparse(call.func), ast.unparse(given[0])]
    if direct.is_eval:
        return f"%gpu_fit {' '.join(words)} --eval"
    optimizers = {
        id(value): name
        for name, value in list(namespace.items())
        if not name.startswith("_")
        and framework.role_of(value) == "optimizer"
        and framework.trains(value, direct.model)
    }
    if len(optimizers) == 1:  # of several it is not known which one
        words[1:1] = optimizers.values()
    return f"%gpu_fit {' '.join(words)}"


def _is_plain(node: ast.expr) -> bool:
    """Return whether an expression is a variable, an attribute or an item, whose value runs nothing."""
    is_named = isinstance(node, ast.Name | ast.Attribute | ast.Subscript)
    return is_named and not any(isinstance(inner, ast.Call | ast.Await) for inner in ast.walk(node))


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, those of a group, and those that each was raised from.

    One that was merely being handled when it was raised is none: `raise … from` says which is.
    """
    seen: set[int] = set()
    waiting = deque([error])
    while waiting and len(seen) < _MOST_CAUSES:
        found = waiting.popleft()
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        if found.__cause__ is not None:
            waiting.append(found.__cause__)
        if isinstance(found, BaseExceptionGroup):
            waiting.extend(found.exceptions)
