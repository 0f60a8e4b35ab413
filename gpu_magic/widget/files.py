"""The page's part: scripts and a style in this folder, written by hand and sent as they are."""

from __future__ import annotations

from pathlib import Path

__all__ = ["joined"]

_HERE = Path(__file__).parent


def joined(*names: str) -> str:
    """Return files of this folder as one: a page fetches nothing, so they can't import each other."""
    return "\n".join((_HERE / name).read_text(encoding="utf-8") for name in names)
