"""The source of functions that go to an engine: tracebacks there have the lines of a notebook's cells."""

from __future__ import annotations

import linecache
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["add_sources", "sources_of", "with_cells"]


def sources_of(files: Iterable[str]) -> dict[str, list[str]]:
    """Return the lines of files, and of cells, which have names like files."""
    return {file: lines for file in files if (lines := linecache.getlines(file))}


def add_sources(sources: Mapping[str, list[str]]) -> None:
    """Let tracebacks of this process find lines that it has no file for."""
    for file, lines in sources.items():
        if not linecache.getlines(file):
            # Without a time it is never looked for on the disk.
            linecache.cache[file] = sum(map(len, lines)), None, lines, file


def with_cells(text: str, files: Iterable[str]) -> str:
    """Return a traceback in which the cells of this notebook are called as in its own: `Cell In[3]`."""
    ipython = sys.modules.get("IPython.core.getipython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    # IPython before 8.1 calls cells in tracebacks by their files.
    call = getattr(shell and shell.compile, "format_code_name", None)
    for file in files:
        if call is not None and (cell := call(file)):
            text = text.replace(f'File "{file}"', " ".join(cell))
    return text
