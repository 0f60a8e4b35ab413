"""What cells have cost, as `gpu_magic.history` returns it and `%gpu_time report` shows it."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.display.usage import energy_text
from gpu_magic.text import html_block, listed, shortened, size_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpu_magic.usage.record import CellUsage, GpuUsage

__all__ = ["History"]

_HEADINGS = ("Cell", "Wall", "CPU", "Busy", "Peak", "Energy", "GPUs", "")
_RIGHT = 6  # so many of them are figures
_LONGEST_CODE = 50
_MOST_ROWS = 40
_UNKNOWN = "?"


class History(list["CellUsage"]):
    """What cells have cost, in the order in which they ran. Shows itself as a table, the longest first.

    Parameters
    ----------
    records
        The records.

    """

    def __init__(self, records: Iterable[CellUsage] = ()) -> None:
        super().__init__(records)

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame` with a row for each cell and GPU; one for a cell that used none.

        Raises
        ------
        ImportError
            pandas is not installed.

        """
        try:
            import pandas as pd
        except ModuleNotFoundError:
            raise ImportError(
                "to_pandas() needs pandas, which is not installed: pip install pandas."
            ) from None
        rows = []
        for usage in self:
            values = usage.to_dict()
            of_cell = {name: values[name] for name in values if name not in ("gpus", "versions")}
            rows += [
                of_cell | {name: value for name, value in gpu.items() if name != "others"}
                for gpu in values["gpus"] or [{}]
            ]
        return pd.DataFrame(rows)

    @property
    def _longest(self) -> list[CellUsage]:
        return sorted(self, key=lambda usage: -usage.wall)

    def __repr__(self) -> str:
        if not self:
            return "No cell was measured: %gpu_time on measures each that uses a GPU, %%gpu_time this one."
        cells = [_HEADINGS, *map(_cells, self._longest[:_MOST_ROWS])]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(
                text.rjust(width) if place < _RIGHT else text.ljust(width)
                for place, (text, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in cells
        ]
        return "\n".join([*lines, *self._notes()])

    def _repr_html_(self) -> str:
        if not self:
            return html_block("", f"<p>{html.escape(repr(self))}</p>", ())
        head = "".join(_html_cell("th", place, text) for place, text in enumerate(_HEADINGS))
        body = "".join(
            f"<tr>{''.join(_html_cell('td', place, text) for place, text in enumerate(_cells(usage)))}</tr>"
            for usage in self._longest[:_MOST_ROWS]
        )
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._notes())
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return html_block("", table + notes, ())

    def _notes(self) -> Iterator[str]:
        """Yield what the whole has cost, and what its figures mean."""
        total = sum(usage.wall for usage in self)
        known = [usage.energy for usage in self if usage.energy is not UNKNOWN]
        joules = f", {energy_text(sum(known))} of whole GPUs, whoever used them" if known else ""
        more = f"; the {_MOST_ROWS} longest are shown" if len(self) > _MOST_ROWS else ""
        simulated = " These GPUs are SIMULATED." if any(usage.simulated for usage in self) else ""
        yield f"{len(self)} measured, {time_text(total)} in all{joules}{more}.{simulated}"


def _cells(usage: CellUsage) -> tuple[str, ...]:
    busy = [gpu.busy for gpu in usage.gpus if gpu.busy is not UNKNOWN]
    has_gpus = bool(usage.gpus)
    unknown = _UNKNOWN if has_gpus else ""
    return (
        "" if usage.cell is None else f"[{usage.cell}]",
        time_text(usage.wall),
        time_text(usage.user + usage.system),
        f"{sum(busy) / len(busy):.0f} %" if busy else unknown,
        unknown if usage.peak is UNKNOWN else size_text(usage.peak),
        unknown if usage.energy is UNKNOWN else energy_text(usage.energy),
        listed(map(_gpu_name, usage.gpus)),
        shortened(usage.code, _LONGEST_CODE) + (" (failed)" if usage.has_failed else ""),
    )


def _gpu_name(gpu: GpuUsage) -> str:
    return gpu.gpu or gpu.name


def _html_cell(kind: str, place: int, text: str) -> str:
    css = " class='gm-right'" if place < _RIGHT else ""
    return f"<{kind}{css}>{html.escape(text)}</{kind}>"
