"""What a page runs to show panels: one script and one style, as no file of a page's can import another."""

from __future__ import annotations

from gpu_magic.widget import joined

__all__ = ["script", "style"]

_SCRIPTS = (
    "protocol.js",
    "dom.js",
    "restart.js",
    "chart.js",
    "samples.js",
    "rows.js",
    "overview.js",
    "processes.js",
    "detail.js",
    "details.js",
    "grid.js",
    "request.js",
    "clicks.js",
    "loss.js",
    "store.js",
    "question.js",
    "wait.js",
    "options.js",
    "cell.js",
    "visibility.js",
    "connection.js",
    "place.js",
    "chip.js",
    "panel.js",
)


def script() -> str:
    """Return the panel's script: a module, with what anywidget asks of one, and the chip."""
    return joined(*_SCRIPTS)


def style() -> str:
    """Return the style of the panel and the chip."""
    return joined("panel.css", "chip.css")
