"""A hook of MkDocs that colours cells with a magic as Python, because IPython's lexer leaves them plain."""

from __future__ import annotations

from typing import Any, ClassVar

from pygments.lexer import bygroups, inherit
from pygments.lexers import LEXERS
from pygments.lexers.python import PythonLexer
from pygments.token import Keyword, Operator, Text

__all__ = ["CellLexer"]  # Pygments treats every name as a lexer


class CellLexer(PythonLexer):
    """Python with lines of magics and shell commands."""

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
    """Register this lexer before the plugins of Pygments, which include IPython's."""
    del config
    LEXERS[CellLexer.__name__] = (__name__, CellLexer.name, tuple(CellLexer.aliases), (), ())
