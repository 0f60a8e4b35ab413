"""The live panel: choose GPUs by clicking. `messages.py` lists the messages between kernel and pages.

The scripts and the style in this folder are written by hand and sent unchanged to the pages.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["script", "style"]

_HERE = Path(__file__).parent
_SCRIPTS = ("dom.js", "connection.js", "store.js", "grid.js", "detail.js", "panel.js", "place.js")


def script() -> str:
    """Return the panel's script: a module for anywidget that also has the chip.

    Pages fetch no files, so the scripts can't import each other. They are sent as one module.
    """
    return "\n".join((_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS)


def style() -> str:
    """Return the style of the panel and the chip."""
    return (_HERE / "panel.css").read_text(encoding="utf-8")
