"""Awaits a cell magic whose body awaits: IPython itself only awaits what it sees in the cell."""

from __future__ import annotations

import ast
import inspect
from typing import Any

__all__ = ["awaited"]


def awaited(shell: Any, magic: str, lines: list[str]) -> list[str]:
    """Return a transformed cell, with `await` before the magic where its body awaits; any other as it is.

    For `shell.input_transformers_post`.
    """
    is_it = bool(lines) and lines[0].startswith(f"get_ipython().run_cell_magic({magic!r},")
    if not is_it or not shell.autoawait or not ("await" in lines[0] or "async" in lines[0]):
        return lines
    call = ast.parse(lines[0]).body[0]
    body = call.value.args[2].value  # type: ignore[attr-defined] # the line's form is IPython's own
    return [f"await {lines[0]}", *lines[1:]] if _body_awaits(shell, body) else lines


def _body_awaits(shell: Any, body: str) -> bool:
    try:
        source = shell.transform_cell(body)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(source, "<cell>", "exec", flags=flags, dont_inherit=True)
        return bool(code.co_flags & inspect.CO_COROUTINE)
    except (SyntaxError, ValueError, OverflowError):  # it is told once, when the body is run
        return False
