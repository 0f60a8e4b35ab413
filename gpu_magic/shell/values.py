"""Replaces expressions in braces in a magic's line by their values, formatted as magic arguments."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from IPython.utils.text import DollarFormatter

from gpu_magic.errors import GpuMagicError
from gpu_magic.shell.arguments import refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["expand"]


def expand(shell: InteractiveShell, line: str, *, write: Callable[[Any], str], depth: int) -> str:
    """Return a line with its expressions replaced.

    IPython itself does not replace an expression that fails, and accepts an empty value, so that
    `%gpus {ids}` would show the GPUs and choose none.

    Parameters
    ----------
    shell
        The shell whose variables expressions can use.
    line
        The text after the magic.
    write
        Formats a value as magic arguments.
    depth
        The number of frames from the caller up to the code that runs the magic. Expressions can also use the
        local variables of that code.

    Raises
    ------
    LineError
        An expression fails, or its value is None or empty.

    """
    if "{" not in line and "$" not in line:
        return line
    names: dict[str, Any] = dict(shell.user_ns)
    with contextlib.suppress(ValueError):  # there are fewer frames if a program called run_line_magic
        names |= sys._getframe(depth + 1).f_locals  # noqa: SLF001
    try:
        return _Formatter(write).vformat(line, [], names)
    except GpuMagicError:
        raise
    except Exception as error:  # noqa: BLE001 - it is the user's expression
        what = "is not a variable or an expression that has a value here"
        raise refusal(f"{line.strip()!r} {what}: {type(error).__name__}: {error}") from None


class _Formatter(DollarFormatter):
    """IPython's formatter, which here formats values with `write`."""

    def __init__(self, write: Callable[[Any], str]) -> None:
        self._write = write

    def format_field(self, value: Any, format_spec: str) -> str:
        del format_spec
        text = "" if value is None else self._write(value)
        if not text.strip():
            what = "None" if value is None else "empty"
            raise refusal(f"The value in braces is {what}, and names nothing.")
        return text
