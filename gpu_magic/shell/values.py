"""Replaces expressions in braces in a magic's line by their values, formatted as magic arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.utils.text import DollarFormatter

from gpu_magic.errors import GpuMagicError
from gpu_magic.shell.arguments import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["expand"]


def expand(line: str, *, names: Mapping[str, Any], write: Callable[[Any], str]) -> str:
    """Return a line with its expressions replaced.

    IPython itself does not replace an expression that fails, and accepts an empty value, so that
    `%gpus {ids}` would show the GPUs and choose none.

    Parameters
    ----------
    line
        The text after the magic.
    names
        The variables that expressions can use.
    write
        Formats a value as magic arguments.

    Raises
    ------
    LineError
        An expression fails, or its value is None or empty.

    """
    if "{" not in line and "$" not in line:
        return line
    try:
        return _Formatter(write).vformat(line, [], dict(names))  # `eval` takes its names from a dict alone
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
