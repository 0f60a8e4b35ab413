"""Shows what a cell has cost, and writes it into the output's metadata, for the saved notebook."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from IPython.display import display

from gpu_magic.display.usage import quiet_text, usage_lines
from gpu_magic.display.usage_chart import quiet_html, usage_html

if TYPE_CHECKING:
    from gpu_magic.usage.record import CellUsage

__all__ = ["show_json", "show_quietly", "show_usage"]


def show_usage(usage: CellUsage) -> None:
    """Show the figures of a cell, and a chart of each GPU."""
    _display("\n".join(usage_lines(usage)), usage_html(usage), usage)


def show_quietly(usage: CellUsage) -> None:
    """Show them in one line."""
    text = quiet_text(usage)
    _display(text, quiet_html(text), usage)


def show_json(usage: CellUsage) -> None:
    """Print them as JSON."""
    print(json.dumps(usage.to_dict()))


def _display(text: str, html: str, usage: CellUsage) -> None:
    display({"text/plain": text, "text/html": html}, raw=True, metadata={"gpu_magic": _without_names(usage)})


def _without_names(usage: CellUsage) -> dict[str, Any]:
    """Return a record for a notebook's file, which others read: how many processes there were beside it."""
    values = usage.to_dict()
    for gpu in values["gpus"]:
        gpu["others"] = len(gpu["others"])
    del values["code"]  # the cell stands above it
    return values
