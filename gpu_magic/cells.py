"""Runs the body of a cell magic as IPython would have run it as a cell of its own. Knows nothing of GPUs.

`shell.run_cell` inside a magic is not that: its errors do not reach the reply, so "Run All" goes on; hooks
run twice; `await` fails. So the body takes the steps of IPython's own run_cell (9.18,
core/interactiveshell.py): transform, cache its source for tracebacks, parse, transform the tree, compile and
run statement by statement. The last value goes back to the outer cell, whose display it then is.
"""

from __future__ import annotations

import ast
import inspect
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import CodeType

__all__ = ["await_magics", "run"]


def run(shell: Any, body: str, around: AbstractContextManager[Any], between: Callable[[], None]) -> Any:
    """Run a body.

    Parameters
    ----------
    shell
        The shell, whose namespace it runs in.
    body
        As the magic was given it.
    around
        Entered before the body runs, in the thread that runs it, and left at its end however it ends.
    between
        Called after each statement; what it raises ends the body.

    Returns
    -------
    object
        The value of the last expression, to be returned by the magic; None where there is none or a
        semicolon silences it. A coroutine of that where the body awaits: see `await_magics`.

    """
    __tracebackhide__ = True
    steps = list(_compile(shell, body))
    if any(_awaits(code) for code, _ in steps):
        return _run_awaiting(shell, steps, around, between)
    with around:
        value = None
        for code, is_value in steps:
            found = eval(code, shell.user_global_ns, shell.user_ns)  # noqa: S307 - it is the user's own cell
            value = found if is_value else None
            between()
    return value


async def _run_awaiting(
    shell: Any,
    steps: list[tuple[CodeType, bool]],
    around: AbstractContextManager[Any],
    between: Callable[[], None],
) -> Any:
    __tracebackhide__ = True
    with around:
        value = None
        for code, is_value in steps:
            found = eval(code, shell.user_global_ns, shell.user_ns)  # noqa: S307 - it is the user's own cell
            if _awaits(code):
                found = await found
            value = found if is_value else None
            between()
    return value


def await_magics(shell: Any, name: str) -> Callable[[list[str]], list[str]]:
    """Return a transformer for `shell.input_transformers_post` that awaits a cell magic whose body awaits."""
    start = f"get_ipython().run_cell_magic({name!r},"

    def transform(lines: list[str]) -> list[str]:
        if not lines or not lines[0].startswith(start) or not shell.autoawait:
            return lines
        call = ast.parse(lines[0]).body[0]
        body = call.value.args[2].value  # type: ignore[attr-defined] # the line's form is IPython's own
        if ("await" in body or "async" in body) and _body_awaits(shell, body):
            return [f"await {lines[0]}", *lines[1:]]
        return lines

    return transform


def _body_awaits(shell: Any, body: str) -> bool:
    try:
        source = shell.transform_cell(body)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        return _awaits(compile(source, "<cell>", "exec", flags=flags, dont_inherit=True))
    except (SyntaxError, ValueError, OverflowError):  # it is told once, when the body is run
        return False


def _awaits(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_COROUTINE)


def _compile(shell: Any, body: str) -> Iterator[tuple[CodeType, bool]]:
    """Compile a body, statement by statement; tell of each whether it leaves a value behind."""
    __tracebackhide__ = True
    # The lines above the body count, so that tracebacks have the notebook's line numbers, and show its lines.
    above = _above(shell, body)
    blank = re.match(r"(?:[ \t]*\n)*", body)[0]  # type: ignore[index] # it matches nothing, too
    above += blank  # IPython drops them
    body = body[len(blank) :]
    transformed = shell.transform_cell(body)
    name = shell.compile.cache(above + transformed, _cell_number(shell), raw_code=above + body)
    source = "\n" * above.count("\n") + transformed
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if shell.autoawait else 0
    with shell.compile.extra_flags(flags):
        tree = shell.transform_ast(shell.compile.ast_parse(source, name))
        for node, is_shown, is_value in _shown(shell, tree.body, source):
            if is_value:
                yield shell.compile(ast.Expression(node.value), name, "eval"), True  # type: ignore[attr-defined]
            elif is_shown:
                yield shell.compile(ast.Interactive([node]), name, "single"), False
            else:
                yield shell.compile(ast.Module([node], []), name, "exec"), False


def _shown(shell: Any, nodes: list[ast.stmt], source: str) -> Iterator[tuple[ast.stmt, bool, bool]]:
    """Tell of each statement whether its value is shown, and whether it is the body's own value.

    `ast_node_interactivity` decides, as for any cell (IPython, `run_ast_nodes`).
    """
    mode = shell.ast_node_interactivity
    if mode == "last_expr_or_assign" and nodes and (name := _assigned(nodes[-1])):
        shown = ast.Expr(ast.Name(name, ast.Load()))
        nodes = [*nodes, ast.fix_missing_locations(ast.copy_location(shown, nodes[-1]))]
    is_quiet = shell.displayhook.semicolon_at_end_of_expression(source) if source.strip() else True
    for place, node in enumerate(nodes):
        is_last, is_expression = place == len(nodes) - 1, isinstance(node, ast.Expr)
        if is_last and is_expression and mode != "none":
            yield node, False, not is_quiet
        else:
            yield node, mode == "all" or (mode == "last" and is_last), False


def _assigned(node: ast.stmt) -> str:
    """Return the plain name that a statement assigns to; empty where it does something else."""
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    is_assignment = isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
    return target.id if is_assignment and isinstance(target, ast.Name) else ""


def _cell_number(shell: Any) -> int:
    # IPython 8 counts a cell up when it ends and IPython 9 when it begins; both list its input first.
    return len(shell.history_manager.input_hist_parsed) - 1


def _above(shell: Any, body: str) -> str:
    """Return the lines of the cell above the body: the magic's own, and more inside another magic."""
    typed, inside = shell.history_manager.input_hist_raw[-1].rstrip(), body.rstrip()
    return typed[: len(typed) - len(inside)] if inside and typed.endswith(inside) else "\n"
