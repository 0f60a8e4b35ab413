"""Finds what a move has left elsewhere: variables that hold the old memory, or have only a part moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.errors import PlacementError
from gpu_magic.moving.graph import Graph
from gpu_magic.moving.plan import framework_of
from gpu_magic.placement.holdings import holdings_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from gpu_magic.frameworks.base import Holding
    from gpu_magic.moving.plan import Plan
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["OldMemory", "old_memory", "split_variables"]


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


def old_memory(plan: Plan, variables: Iterable[tuple[str, object]]) -> OldMemory | None:
    """Return the memory of moved arrays that variables still hold, so that it is not freed; None for none."""
    keys: set[Hashable] = set()
    for transfer in plan.transfers.values():
        keys.update(holdings_of(transfer.before()))
    names: list[str] = []
    found: dict[Hashable, Holding] = {}
    for name, value in variables:
        held = {key: holding for key, holding in holdings_of([value]).items() if key in keys}
        if held:
            names.append(name)
            found |= held
    if not names:
        return None
    holdings = found.values()
    return OldMemory(
        names, {holding.device for holding in holdings}, sum(holding.nbytes for holding in holdings)
    )


def split_variables(plan: Plan, variables: Iterable[tuple[str, object]]) -> Iterator[tuple[str, int]]:
    """Yield the variables that share what was moved in place and have more elsewhere, with its bytes.

    An optimizer whose model was moved has its state where the model was; a model whose parameters were moved,
    its buffers.
    """
    moved = plan.graph.unchanged_arrays()
    for name, value in variables:
        graph = Graph(plan.requested)
        found = graph.add(value)
        if found.unmovable or name in plan.values or not graph.unchanged_arrays() & moved:
            continue
        try:
            loads = [
                framework_of(module).transfer(plan.requested).add(arrays)
                for module, arrays in found.arrays.items()
            ]
        except PlacementError:
            continue
        if nbytes := sum(load.nbytes for load in loads):
            yield name, nbytes
