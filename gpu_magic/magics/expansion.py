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

__all__ = ["expand", "refuse_names", "text_named"]

_NAME = re.compile(r"\b[A-Za-z_]\w*(?:\[-?[0-9]{1,4}\])?")


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


def refuse_names(
    shell: InteractiveShell,
    magic: str,
    request: str,
    write: Callable[[Any], str],
    is_valid: Callable[[str], bool],
) -> None:
    """Raise for a request that names variables without braces, and would be valid with their values.

    Parameters
    ----------
    shell
        The shell that has the variables.
    magic
        As typed: `%gpus`.
    request
        What is asked for: `n`, `auto:n`, `ids[0]`.
    write
        Returns what one would type for a value.
    is_valid
        Returns whether the magic takes a request.

    Raises
    ------
    UsageError
        It is one. The message has it with braces.

    """
    if is_valid(request):
        return
    names = {name: value for name, value in shell.user_ns.items() if name not in shell.user_ns_hidden}
    found = {name: f"{{{name}}}" for name in _NAME.findall(request) if name.partition("[")[0] in names}
    if not found:
        return
    braced = _NAME.sub(lambda name: found.get(name[0], name[0]), request)
    try:
        is_meant = is_valid(_Formatter(write).vformat(braced, [], names))
    except Exception:  # noqa: BLE001 - these values are not meant, whatever they are
        return
    if is_meant:
        first = next(iter(found.values()))
        raise refusal(f"{request!r} names a variable; {first} stands for its value: try {magic} {braced}")


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
