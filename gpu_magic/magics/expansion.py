"""Replaces `{n}` and `$n` in a magic's line by what one would type for their values."""

from __future__ import annotations

import contextlib
import re
import sys
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.utils.text import DollarFormatter

from gpu_magic.errors import GpuMagicError
from gpu_magic.magics.arguments import refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["expand", "refuse_name", "text_named"]


def expand(shell: InteractiveShell, line: str, *, write: Callable[[Any], str], depth: int) -> str:
    """Return a line with its expressions replaced.

    IPython's own way leaves an expression that fails as it is, and makes nothing of an empty text, so that
    `%gpus {ids}` would show the GPUs and choose none.

    Parameters
    ----------
    shell
        Expressions can have its variables.
    line
        What follows the magic.
    write
        Returns what one would type for a value.
    depth
        How many frames above the caller the code is that runs the magic: expressions can have its local
        variables, too.

    Raises
    ------
    UsageError
        An expression fails, or its value is None or empty.

    """
    if "{" not in line and "$" not in line:
        return line
    names: dict[str, Any] = dict(shell.user_ns)
    with contextlib.suppress(ValueError):  # there are not so many: a program has called run_line_magic
        names |= sys._getframe(depth + 1).f_locals  # noqa: SLF001
    try:
        return _Formatter(write).vformat(line, [], names)
    except (UsageError, GpuMagicError) as error:
        raise UsageError(str(error)) from None
    except Exception as error:  # noqa: BLE001 - it is the user's expression
        what = "is not a variable or an expression that has a value here"
        raise refusal(f"{line.strip()!r} {what}: {type(error).__name__}: {error}") from None


def text_named(shell: InteractiveShell, word: str) -> str:
    """Return the text that `{name}` or `$name` stands for in IPython; any other word is code, and stays."""
    name = re.fullmatch(r"\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)", word)
    value = shell.user_ns.get(name[1] or name[2]) if name else None
    return value if isinstance(value, str) else word


def refuse_name(shell: InteractiveShell, magic: str, request: str, is_valid: Callable[[str], bool]) -> None:
    """Raise UsageError for a request that is a variable's name, which in braces stands for its value."""
    if request.isidentifier() and request in shell.user_ns and not is_valid(request):
        raise refusal(f"{request} is a variable; in braces it stands for its value: {magic} {{{request}}}")


class _Formatter(DollarFormatter):
    """IPython's formatter, but for how it writes values."""

    def __init__(self, write: Callable[[Any], str]) -> None:
        self._write = write

    def format_field(self, value: Any, format_spec: str) -> str:
        del format_spec
        text = "" if value is None else self._write(value)
        if not text.strip():
            what = "None" if value is None else "empty"
            raise UsageError(f"The value in braces is {what}, and names nothing.")
        return text
