"""What is evident of a cell that was measured, and worth a word: each thing is said once."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.frameworks import imported
from gpu_magic.placement.budget import Budget
from gpu_magic.placement.holdings import memory_by_device
from gpu_magic.selection.target import CPU
from gpu_magic.usage.growth import Growth, Growths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_magic.usage.record import CellUsage, GpuUsage

__all__ = ["Hint", "Hints", "IdleGpu", "ModelOnCpu"]

_LONG = 5.0  # seconds: of a shorter cell nobody waits for the end
_IDLE = 20  # percent: busy for less than that
_AT_WORK = 0.5  # of the wall time, in CPU time


class IdleGpu(NamedTuple):
    """A GPU had nothing to do for most of a cell, whose loader loads each batch in the cell's own process."""

    loader: str
    gpu: GpuUsage
    share: float  # of the wall time in which it was idle


class ModelOnCpu(NamedTuple):
    """A cell has worked with a model on the CPU, while GPUs are chosen."""

    model: str


Hint = IdleGpu | ModelOnCpu | Growth


class Hints:
    """Finds out what is evident of the cells of a notebook."""

    def __init__(self) -> None:
        self._told: set[type] = set()
        self._growths = Growths()

    def after(
        self, usage: CellUsage, code: str, namespace: Mapping[str, object], *, has_chosen: bool
    ) -> Hint | None:
        """Return what is to be said of a cell, if anything.

        Parameters
        ----------
        usage
            What it has cost.
        code
            The cell as Python.
        namespace
            The variables of the notebook.
        has_chosen
            Whether GPUs are chosen in this process.

        """
        if not self._can_matter(usage, has_chosen=has_chosen):
            return None
        names = sorted({node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)})
        variables = {name: namespace[name] for name in names if name in namespace}
        found = (
            self._growths.after(usage, code, variables),
            _idle_gpu(usage, _looped(code), variables),
            _model_on_cpu(usage, variables) if has_chosen else None,
        )
        for hint in found:
            if hint is not None and type(hint) not in self._told:
                self._told.add(type(hint))
                return hint
        return None

    def _can_matter(self, usage: CellUsage, *, has_chosen: bool) -> bool:
        """Return whether the figures alone allow a hint: most cells end here."""
        return bool(usage.gpus) or (has_chosen and usage.wall >= _LONG)


def _looped(code: str) -> set[str]:
    """Return the names in what the code's own loops go through: `loader` of `for x in enumerate(loader):`."""
    try:
        loops = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.For | ast.comprehension)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # it is no Python, or has very many levels
        return set()
    return {node.id for loop in loops for node in ast.walk(loop.iter) if isinstance(node, ast.Name)}


def _idle_gpu(usage: CellUsage, looped: set[str], variables: Mapping[str, object]) -> IdleGpu | None:
    if usage.wall < _LONG or len(usage.gpus) != 1:
        return None
    gpu = usage.gpus[0]
    if gpu.busy is UNKNOWN or gpu.idle is UNKNOWN or gpu.busy >= _IDLE or gpu.others or not gpu.busy:
        return None
    loaders = [
        name
        for name, value in variables.items()
        if name in looped and any(framework.loads_in_turn(value) for framework in imported())
    ]
    return IdleGpu(loaders[0], gpu, gpu.idle / usage.wall) if len(loaders) == 1 else None


def _model_on_cpu(usage: CellUsage, variables: Mapping[str, object]) -> ModelOnCpu | None:
    if usage.wall < _LONG or usage.gpus or usage.user + usage.system < _AT_WORK * usage.wall:
        return None
    models = [name for name, value in variables.items() if _is_on_cpu(value)]
    return ModelOnCpu(models[0]) if len(models) == 1 else None


def _is_on_cpu(value: object) -> bool:
    """Return whether a value is a model that could be on a GPU, and all of it is on the CPU."""
    frameworks = [framework for framework in imported() if framework.role_of(value) == "model"]
    if not frameworks or any(framework.without_cuda() for framework in frameworks):
        return False
    budget = Budget()
    with budget.variable("model"):
        found = memory_by_device([value], budget)
    return set(found) == {CPU} and not budget.unfinished
