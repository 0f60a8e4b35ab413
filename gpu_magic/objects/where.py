"""Where variables are: the memory that objects hold on each device."""

from __future__ import annotations

import contextlib
import sys
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from gpu_magic.frameworks.base import Holding
from gpu_magic.frameworks.target import CPU, LogicalDevice
from gpu_magic.objects.namespace import evaluated, variables_of
from gpu_magic.objects.physical import LazySnapshot, described, labels
from gpu_magic.objects.walk import Budget, Walker, collection_paused, warn_of_unread
from gpu_magic.process.parked import known_by, parked
from gpu_magic.public import public
from gpu_magic.text import listed, size_text, text_table

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from gpu_magic.frameworks.base import Framework

__all__ = [
    "IN_GRAPHS",
    "Devices",
    "arrays_in",
    "devices_of",
    "first_of",
    "graphs_of",
    "holdings_in",
    "holdings_of",
    "is_same_device",
    "kept_by_graphs",
    "memory_by_device",
    "unfinished_text",
    "where_lines",
]

_MAX_NAMES = 8  # in a line
IN_GRAPHS = "in graphs (grad_fn)"


def holdings_of(values: Iterable[object], budget: Budget | None = None) -> dict[Hashable, Holding]:
    """Return the memory that values hold, by a key. Views and tied weights have the same key."""
    with collection_paused():
        return holdings_in(arrays_in(values, budget))


def arrays_in(values: Iterable[object], budget: Budget | None = None) -> list[tuple[Any, Framework | None]]:
    """Return the arrays that values hold, each with its framework, or with None if it is NumPy's."""
    walker = Walker(budget=budget)
    for _ in walker.walk(values):
        pass
    return walker.arrays


def holdings_in(arrays: Iterable[tuple[object, Framework | None]]) -> dict[Hashable, Holding]:
    """Return the memory of arrays, by a key. Each comes with its framework, or with None if it is NumPy's."""
    found: dict[Hashable, Holding] = {}
    for array, framework in arrays:
        try:
            holdings = [_numpy_holding(array)] if framework is None else framework.holdings(array)
        except Exception as error:  # noqa: BLE001 - one faulty array must not hide the others
            warn_of_unread(array, error)
            continue
        for holding in holdings:
            found.setdefault(holding.key, holding)
    return found


def _numpy_holding(array: Any) -> Holding:
    """Return the memory of a NumPy array. PyTorch and JAX can share its address, which is the key."""
    numpy: Any = sys.modules["numpy"]
    while isinstance(array.base, numpy.ndarray):
        array = array.base
    bounds = getattr(numpy.lib, "array_utils", numpy).byte_bounds  # NumPy 1 has it at the top
    low, high = bounds(array)  # not nbytes, because a view can repeat elements
    return Holding(CPU, high - low, ("address", low))


def graphs_of(arrays: Iterable[tuple[Any, Framework | None]]) -> list[tuple[Framework, Any]]:
    """Return the last nodes of the graphs that have computed arrays, each after its framework."""
    found: list[tuple[Framework, Any]] = []
    for array, framework in arrays:
        with contextlib.suppress(Exception):  # whatever a type of arrays raises
            if framework is not None and (node := framework.graph_of(array)) is not None:
                found.append((framework, node))
    return found


def kept_by_graphs(graphs: Iterable[tuple[Framework, Any]], budget: Budget) -> dict[Hashable, Holding]:
    """Return the memory that graphs keep to go back, by a key."""
    found: dict[Hashable, Holding] = {}
    pending, seen = list(graphs), dict[int, Any]()  # which keeps the nodes, so that ids stay unique
    while pending and budget.allows():
        framework, node = pending.pop()
        if id(node) not in seen:
            seen[id(node)] = node
            with contextlib.suppress(Exception):
                holdings, objects, before = framework.saved_by(node)
                arrays = arrays_in(objects, budget) if objects else []
                pending += [*((framework, one) for one in before), *graphs_of(arrays)]
                for holding in (*holdings, *holdings_in(arrays).values()):
                    found.setdefault(holding.key, holding)
    return found


def memory_by_device(
    values: Iterable[object], budget: Budget | None = None
) -> dict[LogicalDevice | str, tuple[int, int]]:
    """Return the bytes and the number of arrays by device. Arrays that share memory count as one."""
    return _by_device(holdings_of(values, budget).values())


def _by_device(holdings: Iterable[Holding]) -> dict[LogicalDevice | str, tuple[int, int]]:
    found: dict[LogicalDevice | str, tuple[int, int]] = {}
    for holding in holdings:
        nbytes, arrays = found.get(holding.device, (0, 0))
        found[holding.device] = nbytes + holding.nbytes, arrays + 1
    return found


def is_same_device(device: LogicalDevice | str, other: LogicalDevice) -> bool:
    """Return whether two devices are the same. A GPU without a type equals a GPU of any type."""
    if not isinstance(device, LogicalDevice) or (device.kind, device.index) != (other.kind, other.index):
        return False
    return device.type == other.type or not device.type or not other.type


class Devices(dict[str, int]):
    """Bytes by device: `{"cuda:0": 4000, "cpu": 400}`. Its text also names the physical GPUs."""

    def __init__(self, memory: Mapping[LogicalDevice | str, tuple[int, int]], machine: LazySnapshot) -> None:
        found = sorted((str(device), here) for device, here in memory.items())
        super().__init__((name, nbytes) for name, (nbytes, _) in found)
        shown = labels(memory, machine)
        self._lines = [
            f"{shown[name]}: {size_text(nbytes)}{f' in {arrays} arrays' if arrays > 1 else ''}"
            for name, (nbytes, arrays) in found
        ]

    def __repr__(self) -> str:
        return "\n".join(self._lines) or "No arrays."


@public
def devices_of(*things: Any) -> Devices:
    """Return the devices that hold variables, of every framework, and the bytes on each device.

    Parameters
    ----------
    things
        Tensors, arrays, models, optimizers, and containers of these, nested to any depth. Shared memory
        (views, tied weights) counts once.

    Returns
    -------
    Devices
        A dictionary from a device's name (`"cuda:0"`, `"cpu"`) to bytes. Its text also names the physical
        GPUs.

    """
    return Devices(memory_by_device(things), LazySnapshot())


def where_lines(shell: Any, names: Sequence[str]) -> list[str]:
    """Return lines with the devices of variables of an IPython shell. No names: all that hold arrays.

    A name can be any expression. Raises PlacementError if a variable does not exist.
    """
    machine, budget, gpus = LazySnapshot(), Budget(), parked.gpus()
    variables = variables_of(shell.user_ns, shell.user_ns_hidden)
    if names:
        variables = {name: evaluated(shell, name) for name in names}
    found: list[tuple[str, dict[Hashable, Holding], dict[Hashable, Holding]]] = []
    for name, value in variables.items():
        with budget.variable(name), collection_paused():
            arrays = arrays_in([value], None if names else budget)
            own, kept = holdings_in(arrays), kept_by_graphs(graphs_of(arrays), budget)
        for array, framework in arrays if gpus else ():
            if there := [gpus[id(part)] for part in known_by(array) if id(part) in gpus]:
                for key, one in holdings_in([(array, framework)]).items():
                    own[key] = one._replace(device=f"{described(CPU, machine)}, parked from {there[0]}")
        found.append((name, own, kept))
    held = {key for _, own, _ in found for key in own}
    if names and any(kept.keys() - held for _, _, kept in found):  # a model that another variable has
        others = variables_of(shell.user_ns, shell.user_ns_hidden)
        held |= holdings_of(others.values(), Budget()).keys()
    rows: list[tuple[str, str]] = []
    for name, own, kept in found:
        graphs = _by_device(one for key, one in kept.items() if key not in held)
        devices = Devices(_by_device(own.values()), machine)
        if names or devices:
            text = str(devices) if devices else "no arrays"
            shown = labels(graphs, machine)
            more = [f"{shown[str(on)]}: {size_text(size)} {IN_GRAPHS}" for on, (size, _) in graphs.items()]
            rows += zip_longest([name], [*text.split("\n"), *more], fillvalue="")
    rows = rows or [("No variable holds arrays of an imported framework.", "")]
    lines = text_table(("", ""), rows)
    return [*lines, unfinished_text(budget.unfinished)] if budget.unfinished else lines


def unfinished_text(names: Sequence[str]) -> str:
    """Return a sentence with the variables that were not searched in full."""
    return f"Not searched in full because that takes too long: {listed(first_of(names))}."


def first_of(texts: Sequence[str]) -> list[str]:
    """Shorten a list of names to the first ones."""
    more = [f"{len(texts) - _MAX_NAMES} more"] if len(texts) > _MAX_NAMES else []
    return [*texts[:_MAX_NAMES], *more]
