"""Names what initialized CUDA, as far as it can be found out: an import of the user's, or a framework."""

from __future__ import annotations

import ast
import re
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Sighting", "name_cause"]


class Sighting(NamedTuple):
    """When CUDA was first seen to be initialized, and by what.

    Parameters
    ----------
    when
        `in cell [4]`, or `before gpu_magic was loaded`; empty outside IPython.
    by
        `import kornia`, `PyTorch`; empty where it can't be found out.

    """

    when: str
    by: str = ""


def name_cause(started: Sequence[str], latest: str = "", initializer: str = "", cell: str = "") -> str:
    """Return what has initialized CUDA: `import kornia (through PyTorch)`; empty where nothing is known.

    Parameters
    ----------
    started
        The names of the frameworks that have started a GPU since CUDA was last seen not to be initialized.
    latest
        The package that the user's code began to import last since then.
    initializer
        The package whose import initialized CUDA, where that is certain.
    cell
        The cell that has ended. It is certain to be the latest import if the cell does nothing else after it.

    """
    latest = latest if latest in sys.modules else ""  # not one that has failed
    if latest and not initializer and _only_imports_from(cell, latest):
        initializer = latest
    frameworks = " and ".join(started)
    if initializer:
        return f"import {initializer}" + (f" (through {frameworks})" if frameworks else "")
    return frameworks or (f"import {latest}, or a line after it" if latest else "")


def _only_imports_from(cell: str, package: str) -> bool:
    """Return whether a cell, from where it first imports a package, contains nothing but imports.

    The driver was asked when that import began, so what is above has not initialized CUDA.
    """
    # A magic or a shell command can do anything: it is made a statement that is not an import.
    python = re.sub(r"^([ \t]*)[%!].*", r"\1...", cell, flags=re.MULTILINE)
    try:
        statements = ast.parse(python).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # it is no Python, or has very many levels
        return False
    imports = [_imported_by(statement) for statement in statements]
    first = next((position for position, names in enumerate(imports) if package in names), None)
    return first is not None and all(imports[first:])


def _imported_by(statement: ast.stmt) -> list[str]:
    """Return the top-level packages that a statement imports; none where it is not an import."""
    if isinstance(statement, ast.ImportFrom):
        return [(statement.module or "").partition(".")[0]]
    if isinstance(statement, ast.Import):
        return [alias.name.partition(".")[0] for alias in statement.names]
    return []
