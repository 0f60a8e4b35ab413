"""Runs the body of a cell magic as IPython runs a cell. This module is independent of GPUs.

`shell.run_cell` inside a magic differs: its errors do not reach the reply, so "Run All" continues; hooks run
twice; `await` fails. So this module repeats the steps of IPython's own run_cell (9.18,
core/interactiveshell.py): transform the source, cache it for tracebacks, parse it, transform the tree,
compile and run statement by statement. The outer cell gets the last value and displays it.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import re
import sys
import threading
import tokenize
from functools import cached_property
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import CodeType

__all__ = ["Body", "await_magic", "awaits", "body_of", "cell_number"]

# Pieces of code, each with a flag: True if it evaluates an expression.
Steps = list[tuple["CodeType", bool]]

# IPython transforms a cell that starts with a cell magic into such a call.
_CALLS = ("get_ipython().run_cell_magic(", "await get_ipython().run_cell_magic(")
_BLANK_LINES = re.compile(r"(?:[ \t]*\n)*")
# Keywords that can be misplaced, which only the compiler finds, and those that make a body await.
_MISPLACED = re.compile(r"\b(?:async|await|break|continue|global|nonlocal|return|yield)\b")
_BLANK = (tokenize.ENDMARKER, tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT)


class _Transformed(threading.local):
    """The bodies of the cell about to run in this thread, transformed to find out if they await."""

    def __init__(self) -> None:
        self.bodies: dict[str, Body] = {}
        self.depth = 0  # the number of nested bodies that are being transformed


_transformed = _Transformed()


def body_of(shell: Any, text: str) -> Body:
    """Return the body of a cell magic, if possible the one that `await_magic` transformed."""
    body = _transformed.bodies.pop(text, None)
    return body if body is not None and body.shell is shell else Body(shell, text)


def await_magic(shell: Any, lines: list[str]) -> list[str]:
    """Return a transformed cell with `await` before its cell magic if the body awaits.

    IPython looks for `await` in the transformed cell, in which the body is a string. For the same reason, it
    would find a syntax error in the body only when the cell runs, and show every frame down to the error. So
    the error is raised here, and IPython shows it as for a plain cell.
    """
    if not _transformed.depth:
        _transformed.bodies.clear()  # of a cell that was transformed but has not run
    try:
        call: Any = ast.parse(lines[0]).body[0]
        name, line, text = map(ast.literal_eval, call.value.args)
    except (SyntaxError, ValueError, AttributeError):
        return lines  # a user typed this call, with variables or over several lines; IPython writes constants
    body = _transformed.bodies[text] = Body(shell, text)
    _transformed.depth += 1
    try:
        return [f"await {lines[0]}", *lines[1:]] if body.check() else lines
    except SyntaxError as error:
        if _transformed.depth == 1:
            typed = f"%%{name} {line}\n{text}"
            error.filename = shell.compile.cache(typed, shell.execution_count, raw_code=typed)
        raise error.with_traceback(None) from None
    except (ValueError, OverflowError, RecursionError):  # `run` raises it
        return lines
    finally:
        _transformed.depth -= 1


class Body:
    """The body of a cell magic. It is transformed once, on first use.

    Parameters
    ----------
    shell
        The shell in whose namespace the body runs.
    text
        The body as the magic gets it.

    Attributes
    ----------
    steps
        The latest result of `compile`.

    """

    def __init__(self, shell: Any, text: str) -> None:
        self.shell, self._text = shell, text
        self.steps: Steps = []
        self._blank: str = _BLANK_LINES.match(text)[0]  # type: ignore[index] # it also matches empty text

    @cached_property
    def source(self) -> str:
        """The body as Python, without its leading blank lines, which IPython drops."""
        transformed: str = self.shell.transform_cell(self._text[len(self._blank) :])
        return transformed

    def check(self) -> bool:
        """Return whether the body awaits at its top level.

        Raises
        ------
        SyntaxError
            The body can't be parsed or compiled. The error has the line numbers of the cell.

        """
        above = 1 + self._blank.count("\n")  # the line of the magic, and the blank lines
        try:
            source = self.source  # also checks the body of another magic in this body
        except SyntaxError as error:
            for line in ("lineno", "end_lineno"):
                setattr(error, line, getattr(error, line) and getattr(error, line) + above)
            raise
        with self._extra_flags() as compiler:
            nodes = compiler.ast_parse("\n" * above + source, "<cell>").body
            if not _MISPLACED.search(source):
                return False
            nodes = [node for node in nodes if not _is_future(node)]  # not always first: see `_pieces`
            return _is_coroutine(compiler(ast.Module(nodes, []), "<cell>", "exec"))

    def compile(self, *, one_by_one: bool, by_displayhook: bool = True) -> Steps:
        """Compile the body as part of its cell.

        Parameters
        ----------
        one_by_one
            Compile each statement separately.
        by_displayhook
            Show the values before the last one with `sys.displayhook`, which belongs to the running cell.
            Otherwise each such expression is a step with a value.

        Returns
        -------
        list
            Each piece of code, and whether it evaluates an expression.

        """
        __tracebackhide__ = True
        try:
            self.steps = list(self._compiled(one_by_one=one_by_one, by_displayhook=by_displayhook))
        except SyntaxError as error:
            raise error.with_traceback(None) from None
        return self.steps

    def run(self, scope: AbstractContextManager[Any], check: Callable[[], None], *, check_each: bool) -> Any:
        """Run the body within a scope.

        Parameters
        ----------
        scope
            A context manager. The thread that runs the body enters and exits it.
        check
            Called after each piece of compiled code, so at least at the end of the body. Its exceptions end
            the body.
        check_each
            Compile each statement separately, so that `check` is called after each.

        Returns
        -------
        object
            The value of the last expression, which the magic returns; None if there is none or if a semicolon
            hides it. If the body awaits, a coroutine that returns this value: see `await_magic`.

        """
        __tracebackhide__ = True
        if awaits(self.compile(one_by_one=check_each)):
            return self._run_async(scope, check)
        with scope:
            return self.run_steps(check)

    def run_steps(self, check: Callable[[], None], show: Callable[[Any], object] | None = None) -> Any:
        """Run the compiled body, which must not await. Return the value that `run` returns.

        `show` is called with each value to show. It is None if the caller is the cell's own magic, which
        returns the value.
        """
        __tracebackhide__ = True
        value = None
        for code, is_value in self.steps:
            result = eval(code, self.shell.user_global_ns, self.shell.user_ns)  # noqa: S307 - the user's own cell
            value = result if is_value else None
            check()
            if show is not None and value is not None:
                show(value)
        return value

    async def _run_async(self, scope: AbstractContextManager[Any], check: Callable[[], None]) -> Any:
        __tracebackhide__ = True
        with scope:
            value = None
            for code, is_value in self.steps:
                result = eval(code, self.shell.user_global_ns, self.shell.user_ns)  # noqa: S307 - the user's own cell
                if _is_coroutine(code):
                    result = await result
                value = result if is_value else None
                check()
        return value

    def _compiled(self, *, one_by_one: bool, by_displayhook: bool) -> Iterator[tuple[CodeType, bool]]:
        __tracebackhide__ = True
        # Lines above the body are included, so that tracebacks have the line numbers of the notebook's cell.
        typed, inside = self.shell.history_manager.input_hist_raw[-1].rstrip(), self._text.rstrip()
        is_there = inside and typed.endswith(inside)
        above = (typed[: len(typed) - len(inside)] if is_there else "\n") + self._blank
        name = self._file_name(above)
        with self._extra_flags() as compiler:
            tree = compiler.ast_parse("\n" * above.count("\n") + self.source, name)
            tree = self.shell.transform_ast(tree)
            for nodes, how in self._pieces(tree.body, one_by_one=one_by_one):
                mode = how
                if mode == "single" and not by_displayhook:
                    mode = "eval" if isinstance(nodes[0], ast.Expr) else "exec"
                piece: ast.mod = ast.Module(nodes, [])
                if mode == "single":
                    piece = ast.Interactive(nodes)
                elif mode == "eval":
                    piece = ast.Expression(nodes[0].value)  # type: ignore[attr-defined] # an ast.Expr
                yield compiler(piece, name, mode), mode == "eval"

    @contextlib.contextmanager
    def _extra_flags(self) -> Iterator[Any]:
        """Let the shell's compiler allow `await` at the top level, if the shell does."""
        compiler = self.shell.compile
        with compiler.extra_flags(ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if self.shell.autoawait else 0):
            yield compiler

    def _file_name(self, above: str) -> str:
        """Return the name of the body's file for tracebacks, debuggers and `inspect.getsource`.

        It is the file of the cell, so that each cell has one file. The file then has the notebook's lines
        instead of the call that IPython makes of them. If there is no such cell, the body gets a new file.
        """
        shown = above + self.source
        frame = sys._getframe(1)  # noqa: SLF001
        while frame is not None:
            name = frame.f_code.co_filename
            if frame.f_globals is self.shell.user_global_ns and name in linecache.cache:
                lines = linecache.getlines(name)
                if len(lines) == 1 and lines[0].startswith(_CALLS):
                    # IPython 7 has a second cache, from which it restores these files before each traceback.
                    for cache in (linecache.cache, getattr(linecache, "_ipython_cache", {})):
                        cache[name] = len(shown), None, shown.splitlines(keepends=True), name
                    return name
                break
            frame = frame.f_back  # type: ignore[assignment]
        typed = above + self._text[len(self._blank) :]
        cached: str = self.shell.compile.cache(shown, cell_number(self.shell), raw_code=typed)
        return cached

    def _pieces(self, nodes: list[ast.stmt], *, one_by_one: bool) -> Iterator[tuple[list[ast.stmt], str]]:
        """Divide the body into pieces to compile as "exec", "single" (shown) or "eval" (its value).

        `ast_node_interactivity` decides what is shown, as for any cell (IPython, `run_ast_nodes`).
        """
        shows = self.shell.ast_node_interactivity
        if shows == "last_expr_or_assign" and nodes and (name := _assigned(nodes[-1])):
            shown = ast.Expr(ast.Name(name, ast.Load()))
            nodes = [*nodes, ast.fix_missing_locations(ast.copy_location(shown, nodes[-1]))]
        is_quiet = _ends_with_semicolon(self.source)
        together: list[ast.stmt] = []
        for node in nodes:
            is_last, is_expression = node is nodes[-1], isinstance(node, ast.Expr)
            if together and _is_future(node):
                yield together, "exec"  # Python requires it at the start of a piece
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


def awaits(steps: Steps) -> bool:
    """Return whether a compiled body awaits at its top level."""
    return any(_is_coroutine(code) for code, _ in steps)


def cell_number(shell: Any) -> int:
    """Return the number of the cell that runs, or else of the latest cell."""
    # IPython 8 increments its count when a cell ends, IPython 9 when it starts. Both list its input first.
    return len(shell.history_manager.input_hist_parsed) - 1


def _is_coroutine(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_COROUTINE)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _assigned(node: ast.stmt) -> str:
    """Return the single plain name that a statement assigns to; empty for other statements."""
    target = getattr(node, "target", None) if isinstance(node, ast.AugAssign | ast.AnnAssign) else None
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
    return target.id if isinstance(target, ast.Name) else ""


def _ends_with_semicolon(source: str) -> bool:
    """Return whether code ends with a semicolon, apart from comments. IPython then shows no value."""
    if ";" not in source:  # tokenizing takes longer than running a short cell
        return False
    tokens = list(tokenize.generate_tokens(StringIO(source).readline))
    last = next((token for token in reversed(tokens) if token.type not in _BLANK), None)
    return last is not None and last.string == ";"
