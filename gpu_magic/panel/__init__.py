"""The live panel: choose GPUs by clicking. `messages.py` says what kernel and pages send each other.

The pages' part is in the scripts and the style here, written by hand and sent as they are.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["script", "style"]

_HERE = Path(__file__).parent
_SCRIPTS = ("dom.js", "connection.js", "store.js", "grid.js", "detail.js", "panel.js", "place.js")


def script() -> str:
    """Return the panel's script: a module, with what anywidget asks of one, and the chip.

    A page fetches nothing, so scripts can't import each other: they are sent as one.
    """
    return "\n".join((_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS)


def style() -> str:
    """Return the style of the panel and the chip."""
    return (_HERE / "panel.css").read_text(encoding="utf-8")
