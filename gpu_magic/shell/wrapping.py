"""Breaks the lines of errors between words. IPython prints a UsageError, so its text has the line breaks."""

from __future__ import annotations

import os
import sys
from typing import Any

from IPython.core.error import UsageError

from gpu_magic.text import wrapped

__all__ = ["fitted", "usage_error"]

_WITHOUT_SIZE = 80  # columns of a terminal that reports none, as serial consoles and some containers do
_IN_A_PAGE = 70  # columns, as fit into a page of 700 pixels; some front ends break no lines of errors at all


def usage_error(shell: Any, text: str) -> UsageError:
    """Return the error that IPython shows as `UsageError: ` and a text, without a traceback."""
    return UsageError(fitted(shell, f"UsageError: {text}").removeprefix("UsageError:").removeprefix(" "))


def fitted(shell: Any, text: str) -> str:
    """Return the text of an error with line breaks for the shell's page or terminal."""
    if hasattr(shell, "kernel"):
        return wrapped(text, _IN_A_PAGE)
    if not sys.stderr.isatty():
        return text
    return wrapped(text, os.get_terminal_size(sys.stderr.fileno()).columns or _WITHOUT_SIZE)
