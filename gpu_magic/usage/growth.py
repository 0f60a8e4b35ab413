"""Finds the variable that keeps more memory each time the same cell runs."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.placement.budget import Budget
from gpu_magic.placement.holdings import gpu_bytes, holdings_of
from gpu_magic.placement.walk import Walker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_magic.usage.record import CellUsage

__all__ = ["Growth", "Growths"]

_RUNS = 3  # in which it has grown: the first one makes what later ones use again
_LEAST = 1 << 20  # bytes a run: less is not worth a word
_MOST_CELLS = 50
# How much of a growth a variable has to hold to be the cause. An allocator hands out whole blocks.
_SHARE = 0.8


class Growth(NamedTuple):
    """What grows.

    Parameters
    ----------
    variable
        The variable that holds it.
    device
        What frameworks call the GPU.
    size
        Bytes more than before the last run.
    keeps_graphs
        Whether it is not what the variable's own arrays take, but what they were computed from.

    """

    variable: str
    device: str
    size: int
    keeps_graphs: bool


class _Held(NamedTuple):
    """What a variable holds: bytes on GPUs, and how many arrays that keep what they were computed from."""

    size: int
    graphs: int


@dataclass
class _Runs:
    """The runs of a cell: in how many in turn memory has grown, and what variables held after the last."""

    grown: int = 0
    held: Mapping[str, _Held] = field(default_factory=dict)


class Growths:
    """Looks at the runs of each cell, which is known by its code."""

    def __init__(self) -> None:
        self._cells: OrderedDict[str, _Runs] = OrderedDict()

    def after(self, usage: CellUsage, code: str, variables: Mapping[str, object]) -> Growth | None:
        """Return what has grown in this run and the ones before, where one variable evidently holds it.

        Parameters
        ----------
        usage
            What the run has cost.
        code
            The cell.
        variables
            Those of the notebook that the cell names.

        """
        grown = [gpu for gpu in usage.gpus if gpu.stayed is not UNKNOWN and gpu.stayed >= _LEAST]
        runs = self._cells.pop(code, None) or _Runs()
        self._cells[code] = runs
        if len(self._cells) > _MOST_CELLS:
            self._cells.popitem(last=False)
        if len(grown) != 1 or usage.has_failed:
            self._cells[code] = _Runs()
            return None
        runs.grown += 1
        if runs.grown < _RUNS - 1:
            return None
        before, runs.held = runs.held, {name: _held(name, value) for name, value in variables.items()}
        if runs.grown < _RUNS:
            return None
        size = grown[0].stayed if grown[0].stayed is not UNKNOWN else 0
        more = {name: _more(runs.held[name], before[name]) for name in runs.held if name in before}
        holders = [name for name, held in more.items() if held.size >= _SHARE * size]
        keepers = [name for name, held in more.items() if held.graphs > 0]
        # Where it could be several, it is not known.
        if len(holders) == 1:
            return Growth(holders[0], grown[0].name, size, keeps_graphs=False)
        if not holders and len(keepers) == 1:
            return Growth(keepers[0], grown[0].name, size, keeps_graphs=True)
        return None


def _more(now: _Held, before: _Held) -> _Held:
    return _Held(now.size - before.size, now.graphs - before.graphs)


def _held(name: str, value: object) -> _Held:
    budget = Budget()
    with budget.variable(name):
        size = gpu_bytes(holdings_of([value], budget))
        arrays = (
            (node.framework, obj)
            for obj, node, _ in Walker(budget=budget).walk([value])
            if node.kind == "array" and node.framework is not None
        )
        graphs = sum(framework.keeps_graph(array) for framework, array in arrays)
    return _Held(size, graphs)
