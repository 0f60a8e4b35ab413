"""The live panel: choose GPUs by clicking. `messages.py` lists the messages between kernel and pages.

The scripts and the style are written by hand and sent to the pages with the table of options. JupyterLab's
extension needs `connection.js` and `panel.css` before a kernel sends them: they are in `labextension/page`.
"""

from __future__ import annotations

import json
from pathlib import Path

from gpu_magic.option_table import CHOICE, FILTERS, Kind

__all__ = ["script", "style"]

_HERE = Path(__file__).parent
_PAGE = _HERE.parent / "labextension" / "page"
_SCRIPTS = (
    _HERE / "dom.js",
    _PAGE / "connection.js",
    _HERE / "store.js",
    _HERE / "grid.js",
    _HERE / "detail.js",
    _HERE / "visibility.js",
    _HERE / "panel.js",
    _HERE / "place.js",
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
    scripts = (file.read_text(encoding="utf-8") for file in _SCRIPTS)
    return "\n".join([f"const OPTIONS = {json.dumps(options)};", *scripts])


def style() -> str:
    """Return the style of the panel and the chip."""
    return (_PAGE / "panel.css").read_text(encoding="utf-8")
