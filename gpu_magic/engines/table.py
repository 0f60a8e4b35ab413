"""The engines of a cluster as a table: their GPUs, the memory in use there, and what they do."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from gpu_magic.gpus.table import memory_texts
from gpu_magic.text import STYLE, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.engines.status import EngineStatus

__all__ = ["EngineTable"]

_HEADINGS = ("Engine", "GPU", "Memory", "State")
# As in the table of GPUs: what is used is blue, what has a problem is gray.
_CLASSES = {"busy": "gm-mine", "idle": "gm-free", "ended": "gm-problem"}


class EngineTable:
    """Shows itself as text in a terminal, and as HTML in a notebook."""

    def __init__(self, statuses: Sequence[EngineStatus]) -> None:
        self._statuses = statuses
        hosts = {status.engine.host for status in statuses}
        self._headings = ("Host", *_HEADINGS) if len(hosts) > 1 else _HEADINGS

    def _cells(self, status: EngineStatus) -> tuple[str, ...]:
        engine = status.engine
        state = f"{status.state} for {_duration(status.seconds)}"
        cells = (str(engine.number), engine.gpus, memory_texts(status.used, status.total)[0], state)
        return (printable(engine.host), *cells) if len(self._headings) > len(_HEADINGS) else cells

    def __repr__(self) -> str:
        lines = [self._headings, *map(self._cells, self._statuses)]
        widths = [max(map(len, texts)) for texts in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{heading}</th>" for heading in self._headings)
        rows = "".join(
            f"<tr class='{_CLASSES[status.state]}'>{''.join(map(_cell, self._cells(status)))}</tr>"
            for status in self._statuses
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        return f"<div class='gpu-magic'><style>{STYLE}</style>{table}</div>"


def _cell(text: str) -> str:
    return f"<td>{html.escape(text)}</td>"


def _duration(seconds: float) -> str:
    """Return a time as people say it: `12 s`, `3 min`, `2 h 5 min`."""
    minutes = int(seconds) // 60
    if not minutes:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"  # noqa: PLR2004
