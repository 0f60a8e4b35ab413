"""What is said below an out-of-memory error: who holds what, what gives some back, how to predict it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.display.process_names import ProcessNames
from gpu_magic.text import listed, printable, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.devices.status import GpuProcess
    from gpu_magic.usage.shortage import Shortage

__all__ = ["shortage_lines"]

_MOST_NAMES = 6


def shortage_lines(shortage: Shortage, fit_line: str = "") -> list[str]:
    """Return the block.

    Parameters
    ----------
    shortage
        What holds the memory.
    fit_line
        The `%gpu_fit` line for the call that failed; empty if there is none.

    """
    lines = [_head(shortage)]
    facts = [("this kernel", _ours(shortage)), ("others", _others(shortage)), ("%gpu_free", _free(shortage))]
    lines += [f"  {name:<11}  {printable(text)}" for name, text in facts if text]
    return [*lines, f"To predict the memory of this step: {printable(fit_line)}"] if fit_line else lines


def _head(shortage: Shortage) -> str:
    where = f" on {shortage.device}" if shortage.device else ""
    wanted = f"{size_text(shortage.wanted)} more were asked for" if shortage.wanted else ""
    free = ""
    if shortage.free is not UNKNOWN and shortage.total is not UNKNOWN:
        free = f"{size_text(shortage.free)} of {size_text(shortage.total)} are free now"
    said = ", ".join(filter(None, (wanted, free)))
    return f"Out of memory{where}{f': {said}' if said else ''}."


def _ours(shortage: Shortage) -> str:
    names = list(shortage.held)
    parts = [f"{name} ({size_text(shortage.held[name])})" for name in names[:_MOST_NAMES]]
    if rest := names[_MOST_NAMES:]:
        parts.append(f"{len(rest)} more variables ({size_text(sum(shortage.held[name] for name in rest))})")
    if shortage.unnamed:
        parts.append(f"no variable leads to {size_text(shortage.unnamed)}")
    return listed(parts)


def _others(shortage: Shortage) -> str:
    processes = sorted(shortage.others, key=lambda one: 0 if one.memory is UNKNOWN else -one.memory)
    names = ProcessNames(processes)
    parts = list(_described(processes[:_MOST_NAMES], names))
    more = len(processes) - _MOST_NAMES
    return listed([*parts, f"{more} more"] if more > 0 else parts)


def _described(processes: list[GpuProcess], names: ProcessNames) -> Iterator[str]:
    for process in processes:
        owner = "unknown" if process.owner is UNKNOWN else process.owner
        size = "?" if process.memory is UNKNOWN else size_text(process.memory)
        yield f"{owner}: {names.name(process)} ({size})"


def _free(shortage: Shortage) -> str:
    parts = [f"{name} ({size_text(size)})" for name, size in shortage.droppable.items()]
    if len(parts) > _MOST_NAMES:
        parts = [*parts[:_MOST_NAMES], f"{len(parts) - _MOST_NAMES} more"]
    if shortage.cached:
        parts.append(f"{size_text(shortage.cached)} that is kept unused")
    return f"would give back {listed(parts)}." if parts else "would give nothing back."
