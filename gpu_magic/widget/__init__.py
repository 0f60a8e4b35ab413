"""What you click: a live panel. Thin: show, record what is wished, call the session.

The page's part is in the scripts and the style here, written by hand and sent as they are.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["joined"]

_HERE = Path(__file__).parent


def joined(*names: str) -> str:
    """Return files of this folder as one: a page fetches nothing, so they can't import each other."""
    return "\n".join((_HERE / name).read_text(encoding="utf-8") for name in names)
