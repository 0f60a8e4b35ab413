"""What a cell has cost, as text: a line for each GPU, and all cells as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.text import listed, printable, shortened, size_text, time_text

if TYPE_CHECKING:
    from gpu_magic.usage.record import CellUsage, GpuUsage

__all__ = ["energy_text", "gpu_name", "gpu_text", "quiet_text", "usage_lines"]

_SHORT = 1.0  # seconds: how busy a GPU was is not known of less
_LONGEST_NAME = 40
_MOST_NAMED = 3


def usage_lines(usage: CellUsage) -> list[str]:
    """Return the wall and CPU time, and what was used of each GPU: one line, or one more for each GPU."""
    times = (
        f"Wall {time_text(usage.wall)} · CPU {time_text(usage.user + usage.system)} "
        f"(user {time_text(usage.user)}, sys {time_text(usage.system)})"
    )
    if not usage.gpus:
        why = usage.problem.partition(". ")[0].removesuffix(".")
        return [f"{times} · {why or 'no GPU was used'}"]
    lines = [gpu_text(gpu, usage) for gpu in usage.gpus]
    return [f"{times} · {lines[0]}"] if len(lines) == 1 else [times, *lines]


def quiet_text(usage: CellUsage) -> str:
    """Return the same shorter, in one line, without what is not known."""
    parts = [time_text(usage.wall)]
    for gpu in usage.gpus:
        figures = [
            "" if gpu.busy is UNKNOWN else f"{gpu.busy:.0f} % busy",
            "" if gpu.peak is UNKNOWN else _peak(gpu),
            "" if gpu.energy is UNKNOWN else _energy(gpu),
        ]
        shared = f"shared with {_others(gpu)}" if gpu.others else ""
        parts.append(f"{gpu_name(gpu, usage)}: {', '.join(filter(None, [*figures, shared])) or 'used'}")
    number = "" if usage.cell is None else f"[{usage.cell}] "
    return number + " · ".join(parts)


def gpu_text(gpu: GpuUsage, usage: CellUsage) -> str:
    """Return what was used of one GPU."""
    parts = [_busy(gpu, usage), _memory(gpu)]
    if gpu.uuid:  # the driver knows it
        parts.append("energy not known" if gpu.energy is UNKNOWN else f"{_energy(gpu)} (whole GPU)")
    if gpu.others:
        parts.append(f"shared with {_others(gpu)}")
    return f"{gpu_name(gpu, usage)}: {', '.join(filter(None, parts))}"


def gpu_name(gpu: GpuUsage, usage: CellUsage) -> str:
    """Return `cuda:0 = GPU 3`; a GPU that does not exist is marked."""
    mark = "SIMULATED " if usage.simulated and gpu.gpu else ""
    return " = ".join(filter(None, [gpu.name, f"{mark}{gpu.gpu}"]))


def _busy(gpu: GpuUsage, usage: CellUsage) -> str:
    if not gpu.uuid:
        return ""  # an accelerator whose utilization nobody tells
    if gpu.busy is UNKNOWN or gpu.idle is UNKNOWN:
        return "too short to tell how busy" if usage.wall < _SHORT else "how busy is not known"
    own = f" ({gpu.busy_own:.0f} % by this process)" if gpu.others and gpu.busy_own is not UNKNOWN else ""
    return f"{gpu.busy:.0f} % busy{own}, idle for {time_text(gpu.idle)}"


def _memory(gpu: GpuUsage) -> str:
    if gpu.peak is UNKNOWN:
        return "memory not known"
    stayed = "" if gpu.stayed is UNKNOWN else f", {_stayed(gpu.stayed)}"
    return f"{_peak(gpu)} ({gpu.peak_by}){stayed}"


def _peak(gpu: GpuUsage) -> str:
    size = 0 if gpu.peak is UNKNOWN else gpu.peak
    return f"peak {'' if gpu.is_exact else 'about '}{size_text(size)}"


def _stayed(size: int) -> str:
    if not size:
        return "nothing stayed"
    return f"{size_text(size)} stayed" if size > 0 else f"{size_text(-size)} given back"


def _energy(gpu: GpuUsage) -> str:
    return "?" if gpu.energy is UNKNOWN else energy_text(gpu.energy)


def energy_text(joules: float) -> str:
    """Return joules: `2,140 J`, `0.24 J`."""
    return f"{joules:,.0f} J" if joules >= 10 else f"{joules:.2g} J"  # noqa: PLR2004


def _others(gpu: GpuUsage) -> str:
    names = list(
        dict.fromkeys(
            shortened(f"{other.name} ({other.owner})" if other.owner else other.name, _LONGEST_NAME)
            for other in gpu.others
        )
    )
    more = [f"{len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
    return printable(listed([*names[:_MOST_NAMED], *more]))
