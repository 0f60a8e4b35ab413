"""Shows lines: below the cell if there is a shell, otherwise as printed text.

JupyterLab and Notebook 7 break the lines of printed text, and of `text/plain`, at any letter. They show HTML
instead if there is some.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from gpu_magic.text import html_text

__all__ = ["bundle", "show"]


def bundle(text: str) -> dict[str, str]:
    """Return a text as the data of a display: for pages as HTML, for terminals as it is."""
    return {"text/plain": text, "text/html": html_text(text)}


def show(*lines: object) -> None:
    """Show lines, if there are some."""
    if not lines:
        return
    text = "\n".join(map(str, lines))
    ipython: Any = sys.modules.get("IPython.core.getipython")
    shell = ipython.get_ipython() if ipython is not None else None
    session = shell and getattr(shell.display_pub, "session", None)
    if shell is None or (session and session.pid != os.getpid()):  # a fork of a kernel can only print
        print(text)  # noqa: T201 - for the user of a script
    else:
        shell.display_pub.publish(bundle(text))
