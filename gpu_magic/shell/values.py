"""Values in a line: what stands for one in braces is replaced by what one would type for it."""

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
    LineError
        An expression fails, or its value is None or empty.

    """
    if "{" not in line and "$" not in line:
        return line
    names: dict[str, Any] = dict(shell.user_ns)
    with contextlib.suppress(ValueError):  # there are not so many: a program has called run_line_magic
        names |= sys._getframe(depth + 1).f_locals  # noqa: SLF001
    try:
        return _Formatter(write).vformat(line, [], names)
    except GpuMagicError:
        raise
    except Exception as error:  # noqa: BLE001 - it is the user's expression
        what = "is not a variable or an expression that has a value here"
        raise refusal(f"{line.strip()!r} {what}: {type(error).__name__}: {error}") from None


class _Formatter(DollarFormatter):
    """IPython's formatter, but for how it writes values."""

    def __init__(self, write: Callable[[Any], str]) -> None:
        self._write = write

    def format_field(self, value: Any, format_spec: str) -> str:
        del format_spec
        text = "" if value is None else self._write(value)
        if not text.strip():
            what = "None" if value is None else "empty"
            raise refusal(f"The value in braces is {what}, and names nothing.")
        return text
