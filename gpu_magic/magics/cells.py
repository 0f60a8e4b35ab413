"""Runs the body of a cell magic as IPython would have run it as a cell of its own. Knows nothing of GPUs.

`shell.run_cell` inside a magic is not that: its errors do not reach the reply, so "Run All" goes on; hooks
run twice; `await` fails. So the body takes the steps of IPython's own run_cell (9.18,
core/interactiveshell.py): transform, cache its source for tracebacks, parse, transform the tree, compile and
run statement by statement. The last value goes back to the outer cell, whose display it then is.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import sys
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, TracebackType

__all__ = ["run"]

# What IPython makes of a cell that begins with a cell magic.
_CALLS = ("get_ipython().run_cell_magic(", "await get_ipython().run_cell_magic(")
_BLANK = re.compile(r"(?:[ \t]*\n)*")


class Around(Protocol):
    """What a body runs within: entered before it in the thread that runs it, and left however it ends.

    Parameters
    ----------
    is_watching
        Whether `between` has to be called.

    """

    is_watching: bool

    def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def between(self) -> None:
        """Be called after each statement; what it raises ends the body."""


def run(shell: Any, body: str, around: Around) -> Any:
    """Run a body.

    Parameters
    ----------
    shell
        The shell, whose namespace it runs in.
    body
        As the magic was given it.
    around
        What it runs within.

    Returns
    -------
    object
        The value of the last expression, to be returned by the magic; None where there is none or a
        semicolon silences it. A coroutine of that where the body awaits: see `magics.awaiting`.

    """
    __tracebackhide__ = True
    try:
        steps = list(_compile(shell, body, one_by_one=around.is_watching))
    except SyntaxError as error:
        raise error.with_traceback(None) from None
    if any(_awaits(code) for code, _ in steps):
        return _run_awaiting(shell, steps, around)
    with around:
        value = None
        for code, is_value in steps:
            found = eval(code, shell.user_global_ns, shell.user_ns)  # noqa: S307 - it is the user's own cell
            value = found if is_value else None
            around.between()
    return value


async def _run_awaiting(shell: Any, steps: list[tuple[CodeType, bool]], around: Around) -> Any:
    __tracebackhide__ = True
    with around:
        value = None
        for code, is_value in steps:
            found = eval(code, shell.user_global_ns, shell.user_ns)  # noqa: S307 - it is the user's own cell
            if _awaits(code):
                found = await found
            value = found if is_value else None
            around.between()
    return value


def _awaits(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_COROUTINE)


def _compile(shell: Any, body: str, *, one_by_one: bool) -> Iterator[tuple[CodeType, bool]]:
    """Compile a body, statement by statement; tell of each whether it leaves a value behind."""
    __tracebackhide__ = True
    # The lines above the body count, so that tracebacks have the notebook's line numbers, and show its lines.
    above = _above(shell, body)
    blank = _BLANK.match(body)[0]  # type: ignore[index] # it matches nothing, too
    above += blank  # IPython drops them
    body = body[len(blank) :]
    transformed = shell.transform_cell(body)
    name = _file_name(shell, above, body, transformed)
    source = "\n" * above.count("\n") + transformed
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if shell.autoawait else 0
    with shell.compile.extra_flags(flags):
        tree = shell.transform_ast(shell.compile.ast_parse(source, name))
        for nodes, how in _steps(shell, tree.body, transformed, one_by_one=one_by_one):
            whole = {"eval": _value, "single": ast.Interactive, "exec": _module}[how](nodes)
            yield shell.compile(whole, name, how), how == "eval"


def _file_name(shell: Any, above: str, body: str, transformed: str) -> str:
    """Return the name of the file that the body is in for tracebacks, debuggers and `inspect.getsource`.

    It is the cell's own, so that there is one file a cell, which then shows what stands in the notebook
    instead of the call that IPython makes of it. Where there is no such cell, the body gets one for itself.
    """
    frame = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        name = frame.f_code.co_filename
        if frame.f_globals is shell.user_global_ns and name in linecache.cache:
            lines = linecache.getlines(name)
            if len(lines) == 1 and lines[0].startswith(_CALLS):
                shown = above + transformed
                linecache.cache[name] = len(shown), None, shown.splitlines(keepends=True), name
                return name
            break
        frame = frame.f_back  # type: ignore[assignment]
    cached: str = shell.compile.cache(above + transformed, _cell_number(shell), raw_code=above + body)
    return cached


def _module(nodes: list[ast.stmt]) -> ast.Module:
    return ast.Module(nodes, [])


def _value(nodes: list[ast.stmt]) -> ast.Expression:
    (node,) = nodes
    return ast.Expression(node.value)  # type: ignore[attr-defined] # an ast.Expr


def _steps(
    shell: Any, nodes: list[ast.stmt], source: str, *, one_by_one: bool
) -> Iterator[tuple[list[ast.stmt], str]]:
    """Divide a body into what is compiled together, and how: "exec", "single" (shown), "eval" (its value).

    `ast_node_interactivity` decides what is shown, as for any cell (IPython, `run_ast_nodes`).
    """
    mode = shell.ast_node_interactivity
    if mode == "last_expr_or_assign" and nodes and (name := _assigned(nodes[-1])):
        shown = ast.Expr(ast.Name(name, ast.Load()))
        nodes = [*nodes, ast.fix_missing_locations(ast.copy_location(shown, nodes[-1]))]
    # ";" is looked for as IPython's display does, which takes longer than running a short cell.
    is_quiet = ";" in source and shell.displayhook.semicolon_at_end_of_expression(source)
    together: list[ast.stmt] = []
    for place, node in enumerate(nodes):
        is_last, is_expression = place == len(nodes) - 1, isinstance(node, ast.Expr)
        how = "exec"
        if is_last and is_expression and mode != "none":
            how = "exec" if is_quiet else "eval"
        elif (mode == "all" and not is_quiet) or (mode == "last" and is_last):
            how = "single"
        if how == "exec":
            together.append(node)
        if together and (how != "exec" or is_last or one_by_one):
            yield together, "exec"
            together = []
        if how != "exec":
            yield [node], how


def _assigned(node: ast.stmt) -> str:
    """Return the one plain name that a statement assigns to; empty where it does something else."""
    target = getattr(node, "target", None) if isinstance(node, ast.AugAssign | ast.AnnAssign) else None
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
    return target.id if isinstance(target, ast.Name) else ""


def _cell_number(shell: Any) -> int:
    # IPython 8 counts a cell up when it ends and IPython 9 when it begins; both list its input first.
    return len(shell.history_manager.input_hist_parsed) - 1


def _above(shell: Any, body: str) -> str:
    """Return the lines of the cell above the body: the magic's own, and more inside another magic."""
    typed, inside = shell.history_manager.input_hist_raw[-1].rstrip(), body.rstrip()
    return typed[: len(typed) - len(inside)] if inside and typed.endswith(inside) else "\n"
