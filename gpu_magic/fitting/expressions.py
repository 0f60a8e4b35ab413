"""Reads what a line names: `model optimizer (x, y)`, `train_step(batch)`."""

from __future__ import annotations

import ast
from types import FunctionType
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import FitError, PlacementError
from gpu_magic.frameworks.prediction import FunctionCall
from gpu_magic.moving.names import parse_expression, raised_text, value_of
from gpu_magic.text import code_words, shortened

if TYPE_CHECKING:
    from collections.abc import Container

__all__ = ["value", "values"]

# What could do anything when it is evaluated.
_RUNS = ast.Call | ast.Await | ast.NamedExpr | ast.Yield | ast.YieldFrom
_LAZY = (ast.Lambda, ast.GeneratorExp)


def values(text: str, namespace: dict[str, Any], hidden: Container[str] = ()) -> list[Any]:
    """Return the values of what a line names; of a call, a `FunctionCall` that is not made.

    Parameters
    ----------
    text
        Expressions, with spaces or commas between them; or one call.
    namespace
        The variables.
    hidden
        The names among them that the user has not made.

    Raises
    ------
    FitError
        One can't be evaluated, or would run something.

    """
    call = _call(text, namespace, hidden)
    if call is not None:
        return [call]
    return [value(word, namespace, hidden) for word in code_words(text.strip().rstrip(";"), commas=True)]


def value(
    text: str, namespace: dict[str, Any], hidden: Container[str] = (), *, may_call: bool = False
) -> Any:
    """Return the value of an expression that runs nothing: names, attributes, items, tuples, a lambda.

    Parameters
    ----------
    text, namespace, hidden
        As for `values`.
    may_call
        It may call functions: `nn.CrossEntropyLoss()`.

    Raises
    ------
    FitError
        It can't be evaluated, or would run something.

    """
    node = parse_expression(text)
    if node is None:
        raise FitError(
            f"{shortened(text, 60)} is not an expression: name them as in Python, with spaces between: model "
            "optimizer batch."
        )
    if _runs(node) and not may_call:
        raise FitError(
            f"{shortened(text, 60)} calls a function: assign what it returns first, and name that."
        )
    return _evaluated(node, namespace, hidden)


def _call(text: str, namespace: dict[str, Any], hidden: Container[str]) -> FunctionCall | None:
    node = parse_expression(text.strip().rstrip(";"))
    if not isinstance(node, ast.Call):
        return None
    is_plain = not any(isinstance(one, ast.Starred) for one in node.args) and all(
        word.arg is not None for word in node.keywords
    )
    if not is_plain or any(map(_runs, [node.func, *node.args, *(word.value for word in node.keywords)])):
        try:
            code = compile(ast.Expression(node), "<gpu_fit>", "eval")  # all of it is evaluated over copies
        except SyntaxError as error:  # `f(await x)`, which has no place there
            raise FitError(f"{shortened(text, 60)} can't be evaluated: {error.msg}.") from None
        return FunctionCall(FunctionType(code, namespace), text=ast.unparse(node))
    function = _evaluated(node.func, namespace, hidden)
    if not callable(function):
        raise FitError(f"{ast.unparse(node.func)} is no function.")
    args = tuple(_evaluated(one, namespace, hidden) for one in node.args)
    kwargs = {str(word.arg): _evaluated(word.value, namespace, hidden) for word in node.keywords}
    return FunctionCall(function, args, kwargs, ast.unparse(node))


def _runs(node: ast.expr) -> bool:
    """Return whether an expression runs code of somebody's when it is evaluated."""
    if isinstance(node, _LAZY):
        return False
    inner = (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
    return isinstance(node, _RUNS) or any(map(_runs, inner))


def _evaluated(node: ast.expr, namespace: dict[str, Any], hidden: Container[str]) -> Any:
    try:
        return eval(compile(ast.Expression(node), "<gpu_fit>", "eval"), namespace)  # noqa: S307 - the user's own
    except NameError as error:
        name = getattr(error, "name", None) or ""
        try:
            value_of(name, namespace, hidden)
        except PlacementError as close:
            raise FitError(str(close)) from None
        raise FitError(f"{ast.unparse(node)} raises NameError: {error}") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever the user's object raises
        raise FitError(f"{ast.unparse(node)} {raised_text(error)}") from None
