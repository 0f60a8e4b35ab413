"""Finds what a move has left elsewhere: variables that hold the old memory, or have only a part moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.moving.graph import Graph
from gpu_magic.moving.plan import framework_of
from gpu_magic.placement.budget import Budget
from gpu_magic.placement.collection import collection_paused
from gpu_magic.placement.holdings import holdings_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from gpu_magic.frameworks.answers import Holding
    from gpu_magic.moving.plan import Plan
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["Leftovers", "OldMemory", "find_leftovers"]


class OldMemory(NamedTuple):
    """Memory that moved arrays had before, and that is still held.

    Parameters
    ----------
    names
        The variables that hold it.
    devices
        The devices that it is on.
    nbytes
        Its size in bytes.

    """

    names: Sequence[str]
    devices: set[LogicalDevice | str]
    nbytes: int


class Leftovers(NamedTuple):
    """What a move has left elsewhere.

    Parameters
    ----------
    old_memory
        What is still held of the memory that was moved; None for nothing.
    split
        Variables that have some of what was moved, and how many bytes each has elsewhere.
    unfinished
        Variables that hold more than was looked at.

    """

    old_memory: OldMemory | None = None
    split: Sequence[tuple[str, int]] = ()
    unfinished: Sequence[str] = ()


def find_leftovers(
    plan: Plan, variables: Iterable[tuple[str, object]], budget: Budget | None = None
) -> Leftovers:
    """Look at all variables after a move.

    Parameters
    ----------
    plan
        The move.
    variables
        All variables, and the outputs that IPython keeps, by their names.
    budget
        How much may be looked at of them; None for the usual.

    """
    budget = budget or Budget()
    before = plan.memory_before()
    names: list[str] = []
    held: dict[Hashable, Holding] = {}
    split: list[tuple[str, int]] = []
    for name, value in variables:
        with budget.variable(name):
            if name not in plan.values and (nbytes := _elsewhere(plan, value, budget)):
                split.append((name, nbytes))
            found = holdings_of([value], budget) if before else {}
        if old := {key: holding for key, holding in found.items() if key in before}:
            names.append(name)
            held |= old
    devices, nbytes = {one.device for one in held.values()}, sum(one.nbytes for one in held.values())
    return Leftovers(OldMemory(names, devices, nbytes) if names else None, split, budget.unfinished)


def _elsewhere(plan: Plan, value: object, budget: Budget) -> int:
    """Return how many bytes a value has elsewhere, if it shares what was moved in place; else 0.

    An optimizer whose model was moved has its state where the model was; a model whose parameters were moved,
    its buffers.
    """
    try:
        with collection_paused():
            graph = Graph(plan.requested, budget=budget)
            found = graph.add(value)
            if found.unmovable or not graph.unchanged_arrays() & plan.graph.unchanged_arrays():
                return 0
            loads = [
                framework_of(module).transfer(plan.requested).add(arrays)
                for module, arrays in found.arrays.items()
            ]
    except Exception:  # noqa: BLE001 - it can't be moved, for whatever reason, and nobody has asked for it
        return 0
    return sum(load.nbytes for load in loads)
