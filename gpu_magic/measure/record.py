"""The records of measured cells and blocks, which show themselves as lines, a chart and a table."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.devices.model import UNKNOWN, Unknown
from gpu_magic.text import (
    escaped,
    html_block,
    html_table,
    listed,
    shortened,
    simulated_mark,
    size_text,
    text_table,
    time_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CellUsage", "GpuUsage", "History", "Sample"]

_LONGEST_CODE, _MOST_ROWS = 50, 40  # of a table
_FEWEST_SAMPLES = 4  # of a chart
_HEADINGS = ("Cell", "Wall", "CPU", "Busy", "Peak", "Energy", "GPUs", "")


class Sample(NamedTuple):
    """A reading of a GPU: seconds since the block started, bytes of this process, percent of utilization."""

    at: float
    memory: int | Unknown
    utilization: float | Unknown


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """The use of one GPU, or MIG instance, by a block. A figure that the driver does not give is UNKNOWN.

    Parameters
    ----------
    name
        The name in frameworks: `cuda:0`.
    gpu, uuid
        Its number, `GPU 3`, and its UUID or else its bus ID. Empty if unknown.
    busy
        Percent: the mean utilization of the GPU, by all processes. UNKNOWN for a block of less than a second,
        because NVML's figure covers up to a second (`nvmlUtilization_t`: a sixth of a second to a second).
    busy_own
        Percent: the mean share of this process, if the driver counts it.
    is_shared
        Whether other processes worked there meanwhile, as far as the driver counts that.
    peak
        The most memory that this process had there, in bytes.
    peak_by
        The source of the peak: a framework, or "driver" for samples of the driver's figure.
    is_exact
        Whether the peak was counted. Samples can miss a short peak.
    memory_change
        The change of this process's memory there, in bytes.
    energy
        Joules of the whole GPU, by all processes.
    samples
        At most 240 readings of the GPU during the block.

    """

    name: str
    gpu: str = ""
    uuid: str = ""
    busy: float | Unknown = UNKNOWN
    busy_own: float | Unknown = UNKNOWN
    is_shared: bool = False
    peak: int | Unknown = UNKNOWN
    peak_by: str = ""
    is_exact: bool = False
    memory_change: int | Unknown = UNKNOWN
    energy: float | Unknown = UNKNOWN
    samples: tuple[Sample, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as values for JSON, without the samples. UNKNOWN becomes None."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "samples"}
        return {name: None if value is UNKNOWN else value for name, value in values.items()}

    def _texts(self, wall: float) -> tuple[str, str]:
        """Return the figures as a long and a short text."""
        busy = share = peak = ""
        memory = "memory unknown"
        if self.busy is not UNKNOWN:
            busy = f"{self.busy:.0f} % busy"
            if self.is_shared and self.busy_own is not UNKNOWN:
                share = f" ({self.busy_own:.0f} % by this process)"
        if self.peak is not UNKNOWN:
            peak = f"peak {'' if self.is_exact else 'about '}{size_text(self.peak)}"
            memory = f"{peak} ({self.peak_by})"
            if self.memory_change is not UNKNOWN:
                size = size_text(abs(self.memory_change))
                change = f"{size} {'stayed' if self.memory_change > 0 else 'freed'}"
                memory += f", {change if self.memory_change else 'nothing stayed'}"
        energy = _energy_text(self.energy)
        joules = f"{energy} (whole GPU)" if energy else "energy unknown"
        is_instance = self.uuid.startswith("MIG-")  # NVML has no utilization of MIG instances
        why = "too short to measure utilization" if wall < 1 and not is_instance else "utilization unknown"
        # No driver reports accelerators without a UUID.
        long = [f"{busy}{share}" or why, memory, joules] if self.uuid else [memory]
        return ", ".join(long), ", ".join(filter(None, [busy, peak, energy]))


@dataclass(frozen=True, slots=True, repr=False)
class CellUsage:
    """The record of a cell, or of a block of `gpu_magic.gpu_time()`.

    Parameters
    ----------
    cell
        The cell's number. None for a block.
    code
        The first line of the cell, or the label of the block.
    started
        When it started, in seconds since the epoch.
    wall
        How long it ran, in seconds.
    user, system
        Seconds of CPU time of this process meanwhile, in its own code and in the system's.
    gpus
        Its use of each GPU, in the order of `cuda:0`, `cuda:1`, …. Empty if it used none.
    problem
        Why nothing is known of GPUs, as a sentence without its full stop. Else empty.
    has_failed
        Whether it ended with an error.
    simulated
        The profile, if the GPUs are simulated.

    """

    cell: int | None
    code: str
    started: float
    wall: float
    user: float
    system: float
    gpus: tuple[GpuUsage, ...] = ()
    problem: str = ""
    has_failed: bool = False
    simulated: str = ""

    @property
    def energy(self) -> float | Unknown:
        """Joules of all its GPUs. UNKNOWN if one of them does not count energy."""
        known = [gpu.energy for gpu in self.gpus if gpu.energy is not UNKNOWN]
        return sum(known) if known and len(known) == len(self.gpus) else UNKNOWN

    @property
    def peak(self) -> int | Unknown:
        """The most memory on one of its GPUs, in bytes. UNKNOWN if no peak is known."""
        return max((gpu.peak for gpu in self.gpus if gpu.peak is not UNKNOWN), default=UNKNOWN)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as values for JSON, without the samples. UNKNOWN becomes None."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return values | {"gpus": [gpu.to_dict() for gpu in self.gpus]}

    def metadata(self) -> dict[str, Any]:
        """Return the record for a notebook's file, without code."""
        return {name: value for name, value in self.to_dict().items() if name != "code"}

    def summary(self) -> str:
        """Return the record as one short line, without unknown figures."""
        number = "" if self.cell is None else f"[{self.cell}] "
        return number + " · ".join([time_text(self.wall), *(self._line(gpu, 1) for gpu in self.gpus)])

    def __repr__(self) -> str:
        cpu = f"(user {time_text(self.user)}, sys {time_text(self.system)})"
        times = f"Wall {time_text(self.wall)} · CPU {time_text(self.user + self.system)} {cpu}"
        lines = [self._line(gpu) for gpu in self.gpus]
        lines = lines or [self.problem or "no GPU was used"]
        return f"{times} · {lines[0]}" if len(lines) == 1 else "\n".join([times, *lines])

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{escaped(line)}</p>" for line in repr(self).split("\n"))
        return html_block("", lines + "".join(map(self._chart, self.gpus)))

    def _name_of(self, gpu: GpuUsage) -> str:
        mark = simulated_mark(self.simulated and gpu.gpu)
        return " = ".join(filter(None, [gpu.name, f"{mark}{gpu.gpu}"]))

    def _line(self, gpu: GpuUsage, length: int = 0) -> str:
        return f"{self._name_of(gpu)}: {gpu._texts(self.wall)[length] or 'used'}"  # noqa: SLF001

    def _chart(self, gpu: GpuUsage) -> str:
        """Return a chart of memory as an area and utilization as a line. Empty with too few samples."""
        scale = 360 / max(self.wall, 1e-9, *(one.at for one in gpu.samples))
        memory = [(one.at * scale, one.memory) for one in gpu.samples if one.memory is not UNKNOWN]
        busy = [(one.at * scale, one.utilization) for one in gpu.samples if one.utilization is not UNKNOWN]
        most = max((size for _, size in memory), default=0)
        if len(gpu.samples) < _FEWEST_SAMPLES or not (most or busy):
            return ""
        ends = [(memory[at][0], 0) for at in (0, -1)] if most else []
        keys = [f"memory (area), up to {size_text(most)}"] * bool(most) + ["busy (line), of 100 %"] * bool(
            busy
        )
        caption = f"{self._name_of(gpu)}, {time_text(self.wall)}: {', '.join(keys)}"
        return (
            "<svg viewBox='0 0 360 48' style='width:360px;max-width:100%;margin:2px 8px;display:block;"
            f"border-bottom:1px solid #8884' role='img' aria-label='{html.escape(self._line(gpu))}'>"
            f"<polygon points='{_points([*ends[:1], *memory, *ends[1:]], most)}' class='gm-blue' "
            f"fill='currentColor' opacity='.4'/><polyline points='{_points(busy, 100)}' class='gm-amber' "
            f"fill='none' stroke='currentColor'/></svg><p class='gm-soft'>{escaped(caption)}</p>"
        )


def _points(points: Sequence[tuple[float, float]], most: float) -> str:
    return " ".join(f"{x:.1f},{47 - y / (most or 1) * 45:.1f}" for x, y in points)


def _energy_text(joules: float | Unknown) -> str:
    """Return joules, `2,140 J` or `0.24 J`. Empty if unknown."""
    if joules is UNKNOWN:
        return ""
    return f"{joules:,.0f} J" if joules >= 10 else f"{joules:.2g} J"  # noqa: PLR2004


class History(list[CellUsage]):
    """The records of cells, in the order in which they ran.

    The list shows itself as a table, the longest cell first.
    """

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame` with a row for each cell and GPU. A cell without a GPU has one row."""
        try:
            import pandas as pd
        except ModuleNotFoundError:
            raise ImportError(
                "to_pandas() needs pandas, which is not installed: pip install pandas"
            ) from None

        rows = []
        for values in (usage.to_dict() for usage in self):
            gpus = values.pop("gpus")
            rows += [values | gpu for gpu in gpus or [{}]]
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        table = text_table(_HEADINGS, self._rows(), right=range(6)) if self else []
        return "\n".join([*table, self._total()])

    def _repr_html_(self) -> str:
        table = html_table(_HEADINGS, self._rows(), right=range(6)) if self else ""
        return html_block("", f"{table}<p>{escaped(self._total())}</p>")

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for usage in sorted(self, key=lambda usage: -usage.wall)[:_MOST_ROWS]:
            busy = [gpu.busy for gpu in usage.gpus if gpu.busy is not UNKNOWN]
            unknown = "?" if usage.gpus else ""
            row = (
                "" if usage.cell is None else f"[{usage.cell}]",
                time_text(usage.wall),
                time_text(usage.user + usage.system),
                f"{sum(busy) / len(busy):.0f} %" if busy else unknown,
                unknown if usage.peak is UNKNOWN else size_text(usage.peak),
                _energy_text(usage.energy) or unknown,
                listed(gpu.gpu or gpu.name for gpu in usage.gpus),
                shortened(usage.code, _LONGEST_CODE) + (" (failed)" if usage.has_failed else ""),
            )
            rows.append(row)
        return rows

    def _total(self) -> str:
        if not self:
            return "No cell was measured. To measure every cell that uses a GPU: %gpu_time on"
        known = [usage.energy for usage in self if usage.energy is not UNKNOWN]
        joules = f", {_energy_text(sum(known))} of whole GPUs (all users)" if known else ""
        more = f"; showing the {_MOST_ROWS} longest" if len(self) > _MOST_ROWS else ""
        simulated = " These GPUs are SIMULATED." if any(usage.simulated for usage in self) else ""
        total = time_text(sum(usage.wall for usage in self))
        return f"{len(self)} measured, {total} in all{joules}{more}.{simulated}"
