"""Frees memory that nobody uses, and finds what holds the rest."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.frameworks import imported
from gpu_magic.placement.budget import Budget
from gpu_magic.placement.holdings import gpu_bytes, holdings_of
from gpu_magic.process.physical import LazySnapshot, labels, used_by_us
from gpu_magic.process.tasks import tasks
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

    from gpu_magic.frameworks.answers import Holding
    from gpu_magic.frameworks.base import Framework
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
    unfinished
        The variables and outputs that hold more than was looked at.

    """

    before: Mapping[str, int]
    after: Mapping[str, int]
    labels: Mapping[str, str]
    notes: tuple[str, ...]
    dropped: Mapping[str, int]
    held: Mapping[str, int]
    unnamed: int
    dry_run: bool
    unfinished: Sequence[str]


def free(history: History | None, *, dry_run: bool = False, budget: Budget | None = None) -> FreedMemory:
    """Drop what only the history keeps, collect garbage, and empty the frameworks' caches.

    Parameters
    ----------
    history
        That of the IPython shell; None where there is none. Then nothing is dropped, and variables are not
        known.
    dry_run
        Only find out.
    budget
        How much of the variables and of the history may be looked at; None for the usual.

    """
    budget = budget or Budget()
    machine = LazySnapshot()
    before = _in_use(machine)
    variables = _holdings_of_variables(history, budget) if history is not None else {}
    of_variables = {key: one for held in variables.values() for key, one in held.items()}
    dropped = _only_in_history(history, of_variables, budget) if history is not None else {}
    after = before
    notes: tuple[str, ...] = ()
    if not dry_run:
        if history is not None:
            _drop(history, dropped)
        gc.collect()
        notes = tuple(filter(None, map(_empty_cache, imported())))
        machine = LazySnapshot()  # the figures have changed
        after = _in_use(machine)
    return FreedMemory(
        {str(device): size for device, size in before.items()},
        {str(device): after.get(device, 0) for device in before},
        labels(before, machine),
        notes,
        dropped,
        {name: size for name, held in variables.items() if (size := gpu_bytes(held))},
        _unnamed(of_variables) if history is not None and not dry_run else 0,
        dry_run,
        budget.unfinished,
    )


def _holdings_of_variables(history: History, budget: Budget) -> dict[str, Mapping[Hashable, Holding]]:
    """Return the memory that each variable holds, by its name."""
    found: dict[str, Mapping[Hashable, Holding]] = {}
    for name, value in history.variables().items():
        with budget.variable(name):
            found[name] = holdings_of([value], budget)
    return found


def _only_in_history(history: History, of_variables: Collection[Hashable], budget: Budget) -> dict[str, int]:
    """Return what of the history alone holds memory on GPUs, by name, and how many bytes.

    What a variable holds, too, would not be freed.
    """

    def held(name: str, values: Iterable[object]) -> int:
        with budget.variable(name):
            found = holdings_of(values, budget)
        return gpu_bytes({key: one for key, one in found.items() if key not in of_variables})

    found = {TRACEBACK: held(TRACEBACK, [history.last_error()])}
    found |= {name: held(name, [value]) for name, value in history.outputs()}
    found |= {name: held(name, [value]) for task in tasks for name, value in task.kept().items()}
    return {name: size for name, size in found.items() if size}


def _drop(history: History, names: Iterable[str]) -> None:
    of_tasks = {name: task for task in tasks for name in task.kept()}
    for name in names:
        if name == TRACEBACK:
            history.drop_traceback()
        elif name in of_tasks:
            of_tasks[name].forget()
        else:
            history.drop_output(name)


def _empty_cache(framework: Framework) -> str:
    """Empty a framework's cache; return what it does not give back, or why it can't: a sentence."""
    try:
        return framework.empty_cache()
    except Exception as error:  # noqa: BLE001 - after an error of CUDA's, each call can raise it again
        why = shortened(f"{type(error).__name__}: {error}".partition("\n")[0], 200).rstrip(".")
        return f"{framework.name} can't empty its cache: {why}."


def _unnamed(of_variables: Mapping[Hashable, Holding]) -> int:
    """Return how many bytes the frameworks count on GPUs that no variable leads to."""
    used = sum(pool.used for framework in imported() for pool in framework.pools().values())
    return max(0, used - gpu_bytes(of_variables))


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
