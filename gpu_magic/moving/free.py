"""Frees memory that nobody uses, and finds what holds the rest."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.frameworks import imported
from gpu_magic.placement.holdings import gpu_bytes, holdings_of
from gpu_magic.placement.physical import LazySnapshot, labels, used_by_us

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping

    from gpu_magic.moving.history import History
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["FreedMemory", "free"]

TRACEBACK = "the last error's traceback"


class FreedMemory(NamedTuple):
    """What was freed, and what holds the rest. All sizes are in bytes.

    Parameters
    ----------
    before, after
        What this process had of each GPU, by what it is called here (`"cuda:0"`).
    labels
        Each with its physical GPU.
    notes
        What a framework does not give back, a sentence each.
    dropped
        What was dropped of the history, by its name; with `dry_run` what would be.
    held
        What each variable holds on GPUs.
    unnamed
        What the frameworks count on GPUs and no variable leads to.
    dry_run
        Whether nothing was freed.

    """

    before: Mapping[str, int]
    after: Mapping[str, int]
    labels: Mapping[str, str]
    notes: tuple[str, ...]
    dropped: Mapping[str, int]
    held: Mapping[str, int]
    unnamed: int
    dry_run: bool


def free(history: History | None, *, dry_run: bool = False) -> FreedMemory:
    """Drop what only the history keeps, collect garbage, and empty the frameworks' caches.

    Parameters
    ----------
    history
        That of the IPython shell; None where there is none. Then nothing is dropped, and variables are not
        known.
    dry_run
        Only find out.

    """
    machine = LazySnapshot()
    before = _in_use(machine)
    dropped = _only_in_history(history) if history is not None else {}
    after = before
    notes: tuple[str, ...] = ()
    if not dry_run:
        if history is not None:
            _drop(history, dropped)
        gc.collect()
        notes = tuple(filter(None, (framework.empty_cache() for framework in imported())))
        machine = LazySnapshot()  # the figures have changed
        after = _in_use(machine)
    variables = history.variables() if history is not None else {}
    return FreedMemory(
        {str(device): size for device, size in before.items()},
        {str(device): after.get(device, 0) for device in before},
        labels(before, machine),
        notes,
        dropped,
        {name: size for name, value in variables.items() if (size := _held([value]))},
        _unnamed(variables.values()) if history is not None and not dry_run else 0,
        dry_run,
    )


def _only_in_history(history: History) -> dict[str, int]:
    """Return what of the history alone holds memory on GPUs, by name, and how many bytes."""
    variables = holdings_of(history.variables().values())  # what a variable holds, too, would not be freed
    found = {TRACEBACK: _held(history.traceback_variables(), variables)}
    found |= {name: _held([value], variables) for name, value in history.outputs()}
    return {name: size for name, size in found.items() if size}


def _drop(history: History, names: Iterable[str]) -> None:
    for name in names:
        if name == TRACEBACK:
            history.drop_traceback()
        else:
            history.drop_output(name)


def _held(values: Iterable[object], others: Collection[Hashable] = ()) -> int:
    """Return how many bytes values hold on GPUs, without the memory that has one of some keys."""
    found = holdings_of(values).items()
    return gpu_bytes({key: holding for key, holding in found if key not in others})


def _unnamed(variables: Iterable[object]) -> int:
    """Return how many bytes the frameworks count on GPUs that no variable leads to."""
    used = sum(pool.used for framework in imported() for pool in framework.pools().values())
    return max(0, used - _held(variables))


def _in_use(machine: LazySnapshot) -> dict[LogicalDevice, int]:
    """Return how many bytes this process has of each GPU: the driver's figure, else the frameworks' own."""
    found: dict[LogicalDevice, int] = {}
    for framework in imported():
        for device, pool in framework.pools().items():
            found[device] = found.get(device, 0) + pool.reserved
    for device in found:
        used = used_by_us(device, machine)
        if used is not UNKNOWN:
            found[device] = used
    return found
