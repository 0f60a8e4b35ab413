"""The engines of a cluster as a table: their GPUs, the memory in use there, and what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.gpus.table import memory_texts
from gpu_magic.text import html_block, html_table, text_table, time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.engines.status import EngineStatus

__all__ = ["EngineTable"]

_HEADINGS = ("Host", "Engine", "GPU", "Memory", "State")


class EngineTable:
    """Shows itself as text in a terminal, and as HTML in a notebook; the hosts where there are several."""

    def __init__(self, statuses: Sequence[EngineStatus]) -> None:
        first = int(len({status.engine.host for status in statuses}) == 1)
        self._headings = _HEADINGS[first:]
        self._rows = [_cells(status)[first:] for status in statuses]

    def __repr__(self) -> str:
        return "\n".join(text_table(self._headings, self._rows))

    def _repr_html_(self) -> str:
        return html_block("", html_table(self._headings, self._rows))


def _cells(status: EngineStatus) -> tuple[str, ...]:
    engine, state = status.engine, f"{status.state} for {time_text(int(status.seconds))}"
    return engine.host, str(engine.number), engine.gpus, memory_texts(status.used, status.total)[0], state
