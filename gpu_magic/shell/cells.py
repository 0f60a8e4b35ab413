"""Lets IPython run the cells of `%%on_gpu` and `%%gpu_time`. This module is independent of GPUs.

An input transformer replaces the line of the magic by `get_ipython().run_cell_magic('on_gpu', '1', ...)`, in
which `...` stands for the rest of the cell. This call starts a block, which ends with the cell. IPython
compiles, awaits, displays and reports the rest as any cell.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import inspect
import linecache
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from IPython.core.error import UsageError
from IPython.core.inputtransformer2 import cell_magic, classic_prompt, ipython_prompt, leading_indent

from gpu_magic.interrupts import postponed_interrupts

if TYPE_CHECKING:
    from types import CodeType, EllipsisType, FrameType

__all__ = ["Begin", "Body", "CellBlocks", "End", "blocks_of", "cell_number"]

# Ends a block. The argument is the error that ended the cell, or None.
End = Callable[[BaseException | None], None]
# Starts a block, and returns what ends it. The argument returns the code that is going to run in the block.
Begin = Callable[[Callable[[], "list[CodeType]"]], End]

_NAMES = ("on_gpu", "gpu_time")
_MAGICS = tuple(f"%%{name}" for name in _NAMES)
# Checks the running block after an import. An import that fails at its own end cannot be repeated.
_CHECK = "get_ipython().run_cell_magic('on_gpu', '', None)"


class Body(NamedTuple):
    """Statements that a magic runs itself, as IPython has parsed and transformed them."""

    shell: Any
    statements: list[ast.stmt]
    file: str  # in tracebacks

    @property
    def awaits(self) -> bool:
        return any(code.co_flags & inspect.CO_COROUTINE for code in self.codes())

    def codes(self) -> list[CodeType]:
        """Return the code of the statements. Empty if one is misplaced, such as `return`."""
        with contextlib.suppress(SyntaxError):
            return self._compiled(self.statements)
        return []

    def run(self, show: Callable[[Any], object]) -> Any:
        """Run the statements, and show the values that IPython would show. Return the last value, or None."""
        __tracebackhide__ = True
        shell, value = self.shell, None
        shows, source = shell.ast_node_interactivity, "".join(linecache.getlines(self.file))
        statements = _with_checks(self.statements)
        for node, code in zip(statements, self._compiled(statements), strict=True):
            value = eval(code, shell.user_global_ns, shell.user_ns)  # noqa: S307 - the user's own code
            is_shown = shows == "all" or (node is statements[-1] and shows != "none")
            if source.rstrip().endswith(";") or not is_shown:
                value = None
            if value is not None:
                show(value)
        return value

    def _compiled(self, statements: list[ast.stmt]) -> list[CodeType]:
        compiler = self.shell.compile
        with compiler.extra_flags(ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if self.shell.autoawait else 0):
            return [
                compiler(ast.Expression(node.value), self.file, "eval")
                if isinstance(node, ast.Expr)
                else compiler(ast.Module([node], []), self.file, "exec")
                for node in statements
            ]


class _Block(NamedTuple):
    place: tuple[CodeType, int]  # of the call that started it
    cell: Any  # IPython's ExecutionResult of the cell, if known
    end: End


class _Thread(threading.local):
    """The blocks of this thread, and what is below the magics of the cell that runs or is about to."""

    def __init__(self) -> None:
        self.blocks: list[_Block] = []
        self.statements: list[ast.stmt] = []
        self.taken_at = 0  # the line of the call whose magic runs the statements itself. 0: IPython runs them


class CellBlocks:
    """The blocks of the running cells of a shell, and the hooks that start and end them."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._here = _Thread()
        self._hooks = (
            (shell.input_transformers_cleanup, self._transform),
            (shell.events.callbacks["post_execute"], self._cell_has_ended),
        )

    def add(self) -> None:
        for hooks, ours in self._hooks:
            hooks.append(ours)

    def remove(self) -> None:
        """End the blocks of this thread, and remove the hooks."""
        self._end(self._here.blocks)
        for hooks, ours in (*self._hooks, (self._shell.ast_transformers, self)):
            if ours in hooks:
                hooks.remove(ours)

    # What IPython calls. An interrupt that comes here is the cell's.

    def _transform(self, lines: list[str]) -> list[str]:
        """Replace the line of a magic by a call, and transform what is below it as a cell."""
        if self._here.blocks:  # an interrupt can have kept IPython from calling the hook
            self._end_of_cell()
        if not lines[1:] or not lines[0].startswith(_MAGICS):
            return lines
        with postponed_interrupts():
            name, _, line = lines[0][2:].rstrip().partition(" ")
            if name not in _NAMES:
                return lines
            # Not earlier: if there is an AST transformer, IPython looks at each node of every cell.
            if self not in self._shell.ast_transformers:
                self._shell.ast_transformers.append(self)
            first = next((at for at in range(1, len(lines)) if lines[at].strip()), len(lines))
            below = lines[first:]
            for transform in (leading_indent, classic_prompt, ipython_prompt, self._transform, cell_magic):
                below = transform(below) if below else below
            return [f"get_ipython().run_cell_magic({name!r}, {line!r}, ...)\n", *lines[1:first], *below]

    # IPython's name: not to be used to find out if a cell is complete. A cell magic is so after a blank line.
    _transform.has_side_effects = True  # type: ignore[attr-defined]

    def visit(self, tree: ast.AST) -> ast.AST:
        """Find what is below the magics of a cell. IPython calls this as an AST transformer."""
        if isinstance(tree, ast.Module) and tree.body and isinstance(tree.body[0], ast.Expr):
            with postponed_interrupts():
                if calls := _calls(tree.body):
                    here, last = self._here, calls[-1]
                    here.statements = tree.body[len(calls) :]
                    here.taken_at = last.lineno if _takes_body(last) else 0
                    tree.body = [*calls, *([] if here.taken_at else _with_checks(here.statements))]
        return tree

    def _cell_has_ended(self) -> None:
        if self._here.blocks:
            self._end_of_cell()

    @postponed_interrupts()
    def _end_of_cell(self) -> None:
        here, latest = self._here, self._shell.last_execution_result
        # IPython has `get_ipython` among the builtins while a cell runs, also in another thread.
        if hasattr(builtins, "get_ipython") or threading.current_thread() is not threading.main_thread():
            self._end([block for block in here.blocks if block.cell is latest])  # of a cell in a cell
        else:
            self._end(here.blocks)

    # What magics call

    def body(self, cell: str | EllipsisType) -> Body | None:
        """Return the body that the magic itself has to run. None: IPython runs the rest of the cell."""
        __tracebackhide__ = True
        if isinstance(cell, str):
            return self.parse(cell)
        frame, here = self._caller(), self._here
        is_taken = frame.f_lineno == here.taken_at
        return Body(self._shell, here.statements, frame.f_code.co_filename) if is_taken else None

    def parse(self, text: str) -> Body:
        """Return the statements of a text, as of a cell. Raise SyntaxError if it cannot be parsed."""
        __tracebackhide__ = True
        shell = self._shell
        source = shell.transform_cell(text)
        file = shell.compile.cache(source, cell_number(shell), raw_code=text)
        try:
            tree = shell.transform_ast(shell.compile.ast_parse(source, file))
        except SyntaxError as error:
            raise error.with_traceback(None) from None
        return Body(shell, tree.body, file)

    def run(self, body: Body | None, begin: Begin, show: Callable[[Any], object] = lambda _: None) -> Any:
        """Run a body in a block, show its values, and return the last one. Or start a block for the cell."""
        __tracebackhide__ = True
        here = self._here
        if body is None:
            frame = self._caller()
            place = frame.f_code, frame.f_lineno
            places = [block.place for block in here.blocks]
            if place in places:  # the next round of %%timeit
                self._end(here.blocks[places.index(place) :])
            body = Body(self._shell, here.statements, frame.f_code.co_filename)
            end = begin(body.codes if body.statements else lambda: [place[0]])
            here.blocks.append(_Block(place, self._shell.displayhook.exec_result, end))
            return None
        if body.awaits:
            raise UsageError("await works only in the cell itself, not in code that another cell runs.")
        end = begin(body.codes)
        with contextlib.ExitStack() as ends:
            ends.push(lambda _, error, __: end(error))
            outside = here.blocks, here.statements
            here.blocks, here.statements = [], body.statements[len(_calls(body.statements)) :]

            def end_inner(_: object, error: BaseException | None, __: object) -> None:
                blocks, (here.blocks, here.statements) = here.blocks, outside
                with contextlib.ExitStack() as inner:
                    for block in blocks:
                        inner.callback(block.end, error)

            ends.push(end_inner)
            return body.run(show)

    def _end(self, blocks: list[_Block]) -> None:
        """End blocks, the innermost first. Show an error, which then is the cell's."""
        here = self._here
        here.blocks = [block for block in here.blocks if block not in blocks]
        for _, cell, end in reversed(blocks):
            try:
                end(None if cell is None else cell.error_before_exec or cell.error_in_exec)
            except Exception as problem:  # noqa: BLE001 - of a framework
                from gpu_magic.shell.wrapping import usage_error

                is_line = type(problem) is UsageError
                error = usage_error(self._shell, str(problem)) if is_line else problem
                self._shell.showtraceback((type(error), error, problem.__traceback__))
                if cell is not None and cell.success:
                    cell.error_in_exec = error

    def _caller(self) -> FrameType:
        """Return the frame of the innermost code of the notebook."""
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
        while frame is not None and frame.f_globals is not self._shell.user_global_ns:
            frame = frame.f_back
        if frame is None:
            raise UsageError("No cell runs. Give the magic the code as text.")
        return frame


def blocks_of(shell: Any) -> CellBlocks:
    """Return the blocks of a shell that has the extension."""
    hooks = (getattr(one, "__self__", None) for one in shell.input_transformers_cleanup)
    return next(one for one in hooks if isinstance(one, CellBlocks))


def cell_number(shell: Any) -> int:
    """Return the number of the cell that runs, or else of the latest cell."""
    # IPython 8 increments its count when a cell ends, IPython 9 when it starts. Both list its input first.
    return len(shell.history_manager.input_hist_parsed) - 1


def _calls(statements: list[ast.stmt]) -> list[ast.stmt]:
    """Return the calls at the start that stand for magics, up to one that takes the rest of the cell."""
    found: list[ast.stmt] = []
    for node in statements:
        match node:
            case ast.Expr(ast.Call(_, [ast.Constant(name), ast.Constant(str()), ast.Constant(rest)])) if (
                name in _NAMES and rest is ...
            ):
                found.append(node)
            case _:
                break
        if _takes_body(node):
            break
    return found


def _takes_body(call: Any) -> bool:
    """Return whether a magic runs the rest of the cell elsewhere, or not at all: --background, --help."""
    words = call.value.args[1].value.partition("#")[0].split()
    return words in (["--help"], ["-h"]) or any(word.startswith("--b") for word in words)


def _with_checks(statements: list[ast.stmt]) -> list[ast.stmt]:
    """Return statements with a check after each import."""
    found: list[ast.stmt] = []
    for node in statements:
        found.append(node)
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Try):
            found.append(ast.increment_lineno(ast.parse(_CHECK).body[0], node.lineno - 1))
    return found
