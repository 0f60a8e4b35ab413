"""A chart of what a cell has used of a GPU over its time: memory as an area, utilization as a line."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.display.usage import gpu_name, gpu_text, usage_lines
from gpu_magic.text import html_block, size_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpu_magic.usage.record import CellUsage, GpuUsage

__all__ = ["quiet_html", "usage_html"]

_FEWEST = 4  # samples: of fewer there is nothing to see
_WIDTH, _HEIGHT = 360, 48

_STYLE = (
    "<style>.gm-usage{display:flex;gap:12px;align-items:center;margin:2px 8px 8px;flex-wrap:wrap}"
    ".gm-usage svg{width:360px;max-width:100%;height:48px;border-bottom:1px solid var(--gm-line);flex:none}"
    ".gm-usage .gm-memory{fill:var(--gm-blue);opacity:.3}"
    ".gm-usage .gm-busy-line{fill:none;stroke:var(--gm-amber);stroke-width:1.5;"
    "vector-effect:non-scaling-stroke}"
    ".gm-usage b{font-weight:400;white-space:nowrap}.gm-usage b:before{content:'';display:inline-block;"
    "width:10px;height:10px;margin-right:5px;background:var(--gm-blue);opacity:.4}"
    ".gm-usage b.gm-is-line:before{height:0;vertical-align:middle;opacity:1;background:none;"
    "border-top:2px solid var(--gm-amber)}"
    ".gm-usage span{display:grid;color:var(--gm-soft);font-size:12px}</style>"
)


def usage_html(usage: CellUsage) -> str:
    """Return the lines of a cell, with a chart for each GPU that there is enough to see of."""
    times, *rest = usage_lines(usage)
    lines = "".join(f"<p>{html.escape(line)}</p>" for line in (times, *rest))
    charts = "".join(_chart(gpu, usage) for gpu in usage.gpus if len(gpu.samples) >= _FEWEST)
    return html_block("", f"{_STYLE}{lines}{charts}" if charts else lines, ())


def _chart(gpu: GpuUsage, usage: CellUsage) -> str:
    seconds = max(usage.wall, gpu.samples[-1].at) or 1.0
    times = [sample.at / seconds * _WIDTH for sample in gpu.samples]
    memory = [None if sample.memory is UNKNOWN else sample.memory for sample in gpu.samples]
    busy = [None if sample.utilization is UNKNOWN else sample.utilization for sample in gpu.samples]
    most = max((size for size in memory if size is not None), default=0)
    drawn, keys = "", ""
    if most:
        path = " ".join(_area(times, [None if size is None else size / most for size in memory]))
        drawn += f"<path class='gm-memory' d='{path}'/>"
        keys += f"<b>memory, up to {size_text(most)}</b>"
    if any(one is not None for one in busy):
        path = " ".join(_line(times, [None if one is None else one / 100 for one in busy]))
        drawn += f"<path class='gm-busy-line' d='{path}'/>"
        keys += "<b class='gm-is-line'>busy, of 100 %</b>"
    if not drawn:
        return ""
    label = html.escape(gpu_text(gpu, usage), quote=True)
    names = html.escape(gpu_name(gpu, usage))
    return (
        f"<div class='gm-usage'><svg viewBox='0 0 {_WIDTH} {_HEIGHT}' preserveAspectRatio='none' role='img' "
        f"aria-label='{label}'>{drawn}</svg><span>{names}, {time_text(usage.wall)}{keys}</span></div>"
    )


def _runs(times: Sequence[float], shares: Sequence[float | None]) -> Iterator[list[tuple[float, float]]]:
    """Yield the points of each piece in which something was known."""
    points: list[tuple[float, float]] = []
    for at, share in zip(times, shares, strict=True):
        if share is not None:
            points.append((at, _HEIGHT - 1 - share * (_HEIGHT - 3)))
        elif points:
            yield points
            points = []
    if points:
        yield points


def _line(times: Sequence[float], shares: Sequence[float | None]) -> Iterator[str]:
    for points in _runs(times, shares):
        yield "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _area(times: Sequence[float], shares: Sequence[float | None]) -> Iterator[str]:
    for points in _runs(times, shares):
        top = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        yield f"M{points[0][0]:.1f} {_HEIGHT}L{top}L{points[-1][0]:.1f} {_HEIGHT}Z"


def quiet_html(text: str) -> str:
    """Return a line that stands back behind the cell's own output."""
    return html_block(text, "", ())
