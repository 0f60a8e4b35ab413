"""Shows text in lines that break between words.

JupyterLab and Notebook 7 break the lines of printed text, and of `text/plain`, at any letter. They show HTML
instead if there is some. IPython prints a UsageError, so the text of the error has the line breaks.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from IPython.core.error import UsageError
from IPython.display import display

from gpu_magic.text import html_text, wrapped

__all__ = ["bundle", "fitted", "show", "usage_error"]

_WITHOUT_SIZE = 80  # columns of a terminal that reports none, as serial consoles and some containers do
_IN_A_PAGE = 70  # columns, as fit into a page of 700 pixels; some front ends break no lines of errors at all


def bundle(text: str) -> dict[str, str]:
    """Return a text as the data of a display: for pages as HTML, for terminals as it is."""
    return {"text/plain": text, "text/html": html_text(text)}


def show(*lines: object) -> None:
    """Show lines below the cell, if there are some."""
    if lines:
        display(bundle("\n".join(map(str, lines))), raw=True)


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
