"""The live panel: choose GPUs by clicking. `messages.py` lists the messages between kernel and pages.

The scripts and the style in this folder are written by hand and sent to the pages with the table of options.
"""

from __future__ import annotations

import json
from pathlib import Path

from gpu_magic.option_table import CHOICE, FILTERS, Kind

__all__ = ["script", "style"]

_HERE = Path(__file__).parent
_SCRIPTS = (
    "dom.js",
    "connection.js",
    "store.js",
    "grid.js",
    "detail.js",
    "visibility.js",
    "panel.js",
    "place.js",
)


def script() -> str:
    """Return the panel's script: a module for anywidget that also has the chip.

    Pages fetch no files, so the scripts can't import each other. They are sent as one module, after the
    options of a choice that the panel has.
    """
    options = [
        {
            "name": one.name,
            "help": one.help.replace("`", ""),
            "example": one.example,
            "is_flag": one.kind is Kind.FLAG,
            "is_size": one.kind is Kind.SIZE,
            "is_filter": name in FILTERS,
            "needs_auto": name in FILTERS and not one.with_numbers,
        }
        for name, one in CHOICE.items()
        if one.in_panel
    ]
    scripts = ((_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    return "\n".join([f"const OPTIONS = {json.dumps(options)};", *scripts])


def style() -> str:
    """Return the style of the panel and the chip."""
    return (_HERE / "panel.css").read_text(encoding="utf-8")
