"""Looks at the body of a cell magic before its cell runs: does it await, and can it be compiled."""

from __future__ import annotations

import ast
import threading
from typing import Any

from gpu_magic.magics.cells import Body

__all__ = ["await_magic", "body_of"]


class _Transformed(threading.local):
    """The bodies of the cell that is about to run in this thread: transformed to find out if they await."""

    def __init__(self) -> None:
        self.bodies: dict[str, Body] = {}
        self.depth = 0  # how many bodies are being transformed, each as part of the one before


_transformed = _Transformed()


def body_of(shell: Any, text: str) -> Body:
    """Return the body of a cell magic: the one that `await_magic` has transformed, if it has."""
    body = _transformed.bodies.pop(text, None)
    return body if body is not None and body.shell is shell else Body(shell, text)


def await_magic(shell: Any, lines: list[str]) -> list[str]:
    """Return a transformed cell with `await` before its cell magic where the body awaits.

    IPython awaits only what it sees in the cell, and the body is a string there. For the same reason it does
    not see a syntax error in the body before it runs the cell, and would show every frame down to it.

    Parameters
    ----------
    shell
        The shell that transforms the cell.
    lines
        The cell, whose first line is `get_ipython().run_cell_magic(…)`.

    Raises
    ------
    SyntaxError
        The body's, as IPython shows it for a plain cell.

    """
    call = lines[0]
    if not _transformed.depth:
        _transformed.bodies.clear()  # of a cell that was transformed and has not run
    try:
        name, line, text = map(ast.literal_eval, ast.parse(call).body[0].value.args)  # type: ignore[attr-defined]
    except (SyntaxError, ValueError, AttributeError):
        return lines  # somebody has typed it, with variables or over several lines; IPython writes constants
    body = _transformed.bodies[text] = Body(shell, text)
    _transformed.depth += 1
    try:
        return [f"await {call}", *lines[1:]] if body.check() else lines
    except SyntaxError as error:
        if _transformed.depth == 1:
            typed = f"%%{name} {line}\n{text}"
            error.filename = shell.compile.cache(typed, shell.execution_count, raw_code=typed)
        raise error.with_traceback(None) from None
    except (ValueError, OverflowError, RecursionError):  # `run` raises it
        return lines
    finally:
        _transformed.depth -= 1
