"""Runs the body of a cell magic as IPython would run it as a cell of its own. Knows nothing of GPUs.

`shell.run_cell` inside a magic is not that: its errors do not reach the reply, so "Run All" goes on; hooks
run twice; `await` fails. So the body takes the steps of IPython's own run_cell (9.18,
core/interactiveshell.py): transform, cache its source for tracebacks, parse, transform the tree, compile and
run statement by statement. The last value goes back to the outer cell, which displays it.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import re
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpu_magic.magics.ipython_versions import has_semicolon_at_end, replace_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import CodeType

__all__ = ["Body", "awaits", "cell_number"]

# Pieces of code, each with whether it has the value of an expression.
Steps = list[tuple["CodeType", bool]]

# What IPython makes of a cell that begins with a cell magic.
_CALLS = ("get_ipython().run_cell_magic(", "await get_ipython().run_cell_magic(")
_BLANK_LINES = re.compile(r"(?:[ \t]*\n)*")
# What can be where it may not be, which Python finds when it compiles; and what makes a body wait.
_MISPLACED = re.compile(r"\b(?:async|await|break|continue|global|nonlocal|return|yield)\b")


class Body:
    """The body of a cell magic. It is transformed once, when that is first needed.

    Parameters
    ----------
    shell
        The shell, whose namespace it runs in.
    text
        As the magic gets it.

    """

    def __init__(self, shell: Any, text: str) -> None:
        self.shell, self._text = shell, text
        self._blank: str = _BLANK_LINES.match(text)[0]  # type: ignore[index] # it matches nothing, too
        # The tree that was checked: the number of lines above it, the compiler's flags, and the tree.
        self._tree: tuple[int, int, ast.Module] | None = None

    @cached_property
    def source(self) -> str:
        """The body as Python, without the blank lines that it begins with: IPython drops them."""
        transformed: str = self.shell.transform_cell(self._text[len(self._blank) :])
        return transformed

    def check(self) -> bool:
        """Return whether the body awaits at its top level, or has an `async for` or `async with` there.

        Raises
        ------
        SyntaxError
            It can't be parsed or compiled. Its lines are those of the cell that the body stands in.

        """
        above = 1 + self._blank.count("\n")  # the magic's own line, and the blank ones
        try:
            source = self.source  # the body of another magic in it is checked as well
        except SyntaxError as error:
            _move_down(error, above)
            raise
        with self._extra_flags() as compiler:
            self._tree = above, compiler.flags, compiler.ast_parse("\n" * above + source, "<cell>")
            if not _MISPLACED.search(source):
                return False
            nodes = self._tree[-1].body
            first = [node for node in nodes if not _is_future(node)]  # they may come late: see `_steps`
            code = compiler(ast.Module(first, []), "<cell>", "exec")
        return _is_coroutine(code)

    def run(self, scope: AbstractContextManager[Any], check: Callable[[], None], *, check_each: bool) -> Any:
        """Run the body within a scope.

        Parameters
        ----------
        scope
            Entered before the body in the thread that runs it, and exited however the body ends.
        check
            Called after whatever is compiled together, so at the end of the body at the latest; what it
            raises ends the body.
        check_each
            Compile each statement by itself.

        Returns
        -------
        object
            The value of the last expression, to be returned by the magic; None where there is none or a
            semicolon silences it. Where the body awaits, a coroutine of that: see `await_magic`.

        """
        __tracebackhide__ = True
        steps = self.compile(one_by_one=check_each)
        if awaits(steps):
            return self._run_async(steps, scope, check)
        with scope:
            return self.run_steps(steps, check)

    def run_steps(
        self, steps: Steps, check: Callable[[], None], show: Callable[[Any], object] | None = None
    ) -> Any:
        """Run a body that was compiled, and that does not await; return what `run` does.

        Parameters
        ----------
        steps, check
            As from `compile`, and as for `run`.
        show
            Called with each value that is to be shown; None where the caller is the cell's own magic, which
            returns it.

        """
        __tracebackhide__ = True
        value = None
        for code, is_value in steps:
            result = eval(code, self.shell.user_global_ns, self.shell.user_ns)  # noqa: S307 - the user's own cell
            value = result if is_value else None
            check()
            if show is not None and value is not None:
                show(value)
        return value

    async def _run_async(
        self,
        steps: Steps,
        scope: AbstractContextManager[Any],
        check: Callable[[], None],
    ) -> Any:
        __tracebackhide__ = True
        with scope:
            value = None
            for code, is_value in steps:
                result = eval(code, self.shell.user_global_ns, self.shell.user_ns)  # noqa: S307 - the user's own cell
                if _is_coroutine(code):
                    result = await result
                value = result if is_value else None
                check()
        return value

    def compile(self, *, one_by_one: bool, by_displayhook: bool = True) -> Steps:
        """Compile the body, in the cell that it stands in.

        Parameters
        ----------
        one_by_one
            Each statement by itself.
        by_displayhook
            Have `sys.displayhook`, which is that of the cell that runs, show what is shown before the last
            value. Otherwise each such expression is a step with a value.

        Returns
        -------
        list
            Each piece of code, and whether it has the value of an expression.

        """
        __tracebackhide__ = True
        try:
            return list(self._compiled(one_by_one=one_by_one, by_displayhook=by_displayhook))
        except SyntaxError as error:
            raise error.with_traceback(None) from None

    def _compiled(self, *, one_by_one: bool, by_displayhook: bool) -> Iterator[tuple[CodeType, bool]]:
        __tracebackhide__ = True
        shell = self.shell
        # The lines above the body count: tracebacks have the notebook's line numbers and show its lines.
        above = _lines_above(shell, self._text) + self._blank
        name, lines = self._file_name(above), above.count("\n")
        with self._extra_flags() as compiler:
            if self._tree is not None and self._tree[:2] == (lines, compiler.flags):
                tree = self._tree[-1]
            else:
                tree = compiler.ast_parse("\n" * lines + self.source, name)
            self._tree = None  # what transforms trees may change this one
            tree = shell.transform_ast(tree)
            for nodes, how in _steps(shell, tree.body, self.source, one_by_one=one_by_one):
                mode = how
                if mode == "single" and not by_displayhook:
                    mode = "eval" if isinstance(nodes[0], ast.Expr) else "exec"
                yield shell.compile(_as_tree(nodes, mode), name, mode), mode == "eval"

    @contextlib.contextmanager
    def _extra_flags(self) -> Iterator[Any]:
        """Have the shell's compiler allow `await` at the top level, where the shell does."""
        compiler = self.shell.compile
        with compiler.extra_flags(ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if self.shell.autoawait else 0):
            yield compiler

    def _file_name(self, above: str) -> str:
        """Return the name of the file that the body is in for tracebacks, debuggers and `inspect.getsource`.

        It is the cell's own file, so that there is one for each cell; it then shows the notebook's lines in
        place of the call that IPython makes of them. Where there is no such cell, the body gets a new file.
        """
        frame = sys._getframe(1)  # noqa: SLF001
        while frame is not None:
            name = frame.f_code.co_filename
            if frame.f_globals is self.shell.user_global_ns and name in linecache.cache:
                lines = linecache.getlines(name)
                if len(lines) == 1 and lines[0].startswith(_CALLS):
                    replace_lines(name, above + self.source)
                    return name
                break
            frame = frame.f_back  # type: ignore[assignment]
        typed = above + self._text[len(self._blank) :]
        number = cell_number(self.shell)
        cached: str = self.shell.compile.cache(above + self.source, number, raw_code=typed)
        return cached


def awaits(steps: Steps) -> bool:
    """Return whether a body that was compiled awaits at its top level."""
    return any(_is_coroutine(code) for code, _ in steps)


def cell_number(shell: Any) -> int:
    """Return the number of the cell that runs, or that was the last to run."""
    # IPython 8 counts a cell up when it ends and IPython 9 when it begins; both list its input first.
    return len(shell.history_manager.input_hist_parsed) - 1


def _move_down(error: SyntaxError, lines: int) -> None:
    if error.lineno is not None:
        error.lineno += lines
    if error.end_lineno is not None:
        error.end_lineno += lines


def _is_coroutine(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_COROUTINE)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _as_tree(nodes: list[ast.stmt], mode: str) -> ast.mod:
    """Return statements as what `compile` takes in a mode."""
    if mode == "exec":
        return ast.Module(nodes, [])
    if mode == "single":
        return ast.Interactive(nodes)
    return ast.Expression(nodes[0].value)  # type: ignore[attr-defined] # an ast.Expr


def _steps(
    shell: Any, nodes: list[ast.stmt], source: str, *, one_by_one: bool
) -> Iterator[tuple[list[ast.stmt], str]]:
    """Divide a body into what is compiled together, and how: "exec", "single" (shown), "eval" (its value).

    `ast_node_interactivity` decides what is shown, as for any cell (IPython, `run_ast_nodes`).
    """
    shows = shell.ast_node_interactivity
    if shows == "last_expr_or_assign" and nodes and (name := _assigned(nodes[-1])):
        shown = ast.Expr(ast.Name(name, ast.Load()))
        nodes = [*nodes, ast.fix_missing_locations(ast.copy_location(shown, nodes[-1]))]
    # To look for it takes longer than to run a short cell.
    is_quiet = ";" in source and has_semicolon_at_end(source)
    together: list[ast.stmt] = []
    for position, node in enumerate(nodes):
        is_last, is_expression = position == len(nodes) - 1, isinstance(node, ast.Expr)
        if together and _is_future(node):
            yield together, "exec"  # Python wants it at the beginning of what is compiled
            together = []
        mode = "exec"
        if is_last and is_expression and shows != "none":
            mode = "exec" if is_quiet else "eval"
        elif (shows == "all" and not is_quiet) or (shows == "last" and is_last):
            mode = "single"
        if mode == "exec":
            together.append(node)
        if together and (mode != "exec" or is_last or one_by_one):
            yield together, "exec"
            together = []
        if mode != "exec":
            yield [node], mode


def _assigned(node: ast.stmt) -> str:
    """Return the one plain name that a statement assigns to; empty where it does something else."""
    target = getattr(node, "target", None) if isinstance(node, ast.AugAssign | ast.AnnAssign) else None
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
    return target.id if isinstance(target, ast.Name) else ""


def _lines_above(shell: Any, body: str) -> str:
    """Return the lines of the cell above the body: the magic's own, and more inside another magic."""
    typed, inside = shell.history_manager.input_hist_raw[-1].rstrip(), body.rstrip()
    return typed[: len(typed) - len(inside)] if inside and typed.endswith(inside) else "\n"
