"""Colours the bodies of cells with a magic as Python: IPython's lexer leaves them plain. A hook of MkDocs."""

from __future__ import annotations

from typing import Any, ClassVar

from pygments.lexer import bygroups, inherit
from pygments.lexers import LEXERS
from pygments.lexers.python import PythonLexer
from pygments.token import Keyword, Operator, Text

__all__ = ["CellLexer"]  # Pygments takes all of it for lexers


class CellLexer(PythonLexer):
    """Python, with lines of magics and of the shell between."""

    name = "A cell of IPython"
    aliases: ClassVar[list[str]] = ["ipython"]
    tokens: ClassVar[dict[str, list[Any]]] = {
        "root": [
            (r"^(\s*)(%{1,2})(\w+\??)(.*\n)", bygroups(Text, Operator, Keyword, Text)),
            (r"^(!)(.*\n)", bygroups(Operator, Text)),
            inherit,
        ]
    }


def on_config(config: object) -> None:
    """Have this lexer asked before the plugins of Pygments, of which IPython's is one."""
    del config
    LEXERS[CellLexer.__name__] = (__name__, CellLexer.name, tuple(CellLexer.aliases), (), ())
