"""Reads lists as `{n}` writes them, and digits and commas as other keyboards have them."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["in_ascii", "without_brackets"]

# Full-width, ideographic, Arabic, small and half-width ones.
_COMMAS, _COLONS = "\uff0c\u3001\u060c\ufe50\uff64", "\uff1a\ufe55"
_MARKS = {ord(mark): plain for marks, plain in ((_COMMAS, ","), (_COLONS, ":")) for mark in marks}


def without_brackets(text: str) -> str:
    """Return a list or a tuple without its brackets and quotes; a call, `f(1)`, stays as it is."""
    if re.search(r"\w[\[(]", text):
        return text.strip()
    return re.sub(r"[\[\]()'\"]", "", text).strip()


def in_ascii(text: str) -> str:
    """Return a text with ASCII's digits, commas, colons and hyphens in the place of others."""
    return text if text.isascii() else "".join(map(_plain, text.translate(_MARKS)))


def _plain(letter: str) -> str:
    if letter.isdecimal():
        return str(unicodedata.decimal(letter))
    return "-" if unicodedata.category(letter) == "Pd" or letter == "\N{MINUS SIGN}" else letter
