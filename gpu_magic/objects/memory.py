"""Which memory objects hold, and on which devices: `devices_of` and `%where`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.frameworks.answers import Holding
from gpu_magic.objects.walk import Budget, Walker, collection_paused
from gpu_magic.process.namespace import evaluated, variables_of
from gpu_magic.process.physical import LazySnapshot, labels
from gpu_magic.public import public
from gpu_magic.selection.target import CPU, LogicalDevice
from gpu_magic.text import listed, size_text

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

__all__ = [
    "Devices",
    "Where",
    "devices_of",
    "gpu_bytes",
    "holdings_of",
    "is_same_device",
    "memory_by_device",
    "named_sizes",
    "shell_here",
    "unfinished_text",
    "where",
]

_MOST_NAMES = 10


def holdings_of(values: Iterable[object], budget: Budget | None = None) -> dict[Hashable, Holding]:
    """Return the memory that values hold, each piece once, by a key that views and tied weights share."""
    found: dict[Hashable, Holding] = {}
    with collection_paused():
        for obj, node, _ in Walker(budget=budget).walk(values):
            holdings: Sequence[Holding] = ()
            try:
                if node.kind == "array" and node.framework is not None:
                    holdings = node.framework.holdings(obj)
                elif node.kind == "numpy":
                    holdings = [_numpy_holding(obj)]
            except Exception:  # noqa: BLE001, S112 - arrays of all kinds are asked; one must not hide the others
                continue
            for holding in holdings:
                found.setdefault(holding.key, holding)
    return found


def _numpy_holding(array: Any) -> Holding:
    """Return what a NumPy array takes; its key is the address, which PyTorch and JAX can share."""
    numpy: Any = sys.modules["numpy"]
    while isinstance(array.base, numpy.ndarray):
        array = array.base
    low, high = numpy.lib.array_utils.byte_bounds(array)  # a view can repeat itself
    return Holding(CPU, high - low, ("address", low))


def memory_by_device(
    values: Iterable[object], budget: Budget | None = None
) -> dict[LogicalDevice | str, tuple[int, int]]:
    """Return the bytes and the number of arrays by device; arrays that share memory count as one."""
    found: dict[LogicalDevice | str, tuple[int, int]] = {}
    for holding in holdings_of(values, budget).values():
        nbytes, arrays = found.get(holding.device, (0, 0))
        found[holding.device] = nbytes + holding.nbytes, arrays + 1
    return found


def gpu_bytes(holdings: Mapping[Hashable, Holding], device: LogicalDevice | None = None) -> int:
    """Return how many bytes of some memory are on GPUs, or on one GPU."""
    return sum(
        one.nbytes
        for one in holdings.values()
        if isinstance(one.device, LogicalDevice)
        and one.device.kind == "gpu"
        and (device is None or is_same_device(one.device, device))
    )


def is_same_device(device: LogicalDevice | str, other: LogicalDevice) -> bool:
    """Return whether a device is another one, which need not say what type of GPU it is."""
    if not isinstance(device, LogicalDevice) or (device.kind, device.index) != (other.kind, other.index):
        return False
    return device.type == other.type or not device.type or not other.type


class Devices(Mapping[str, int]):
    """Bytes by device: `{"cuda:0": 4000, "cpu": 400}`. Shows itself with the physical GPUs.

    Parameters
    ----------
    memory
        The bytes and the number of arrays on each device.
    labels
        What to show for each device: `cuda:0 = GPU 1 (NVIDIA A100 80GB)`.

    """

    def __init__(
        self, memory: Mapping[LogicalDevice | str, tuple[int, int]], labels: Mapping[str, str]
    ) -> None:
        self._memory = dict(sorted((str(device), here) for device, here in memory.items()))
        self._labels = labels

    def __getitem__(self, name: str) -> int:
        return self._memory[name][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._memory)

    def __len__(self) -> int:
        return len(self._memory)

    def __repr__(self) -> str:
        lines = (
            f"{self._labels[name]}: {size_text(nbytes)}{f' in {arrays} arrays' if arrays > 1 else ''}"
            for name, (nbytes, arrays) in self._memory.items()
        )
        return "\n".join(lines) or "No arrays."


class Where(NamedTuple):
    """Which memory variables hold, by their names. Shows itself as text."""

    found: Mapping[str, Devices]
    unfinished: Sequence[str] = ()  # those that hold more than was looked at

    def __repr__(self) -> str:
        width = max(map(len, self.found), default=0)
        lines = [
            f"{name if index == 0 else '':{width}}  {line}"
            for name, devices in self.found.items()
            for index, line in enumerate(str(devices).split("\n") if devices else ["no arrays"])
        ]
        lines = lines or ["No variable here holds arrays of a framework that is imported."]
        return "\n".join([*lines, unfinished_text(self.unfinished)] if self.unfinished else lines)


@public
def devices_of(*things: Any) -> Devices:
    """Return on which devices variables live, in every framework, and how many bytes they take there.

    Parameters
    ----------
    things
        Tensors and arrays, models, optimizers, and containers of them, however nested. What shares memory
        (views, tied weights) is counted once.

    Returns
    -------
    Devices
        A mapping from a device's name (`"cuda:0"`, `"cpu"`) to bytes, which shows itself with the physical
        GPUs.

    """
    return _devices_by_name({"": things})[""]


def where(names: Sequence[str]) -> Where:
    """Return where variables of this process's IPython shell live.

    Parameters
    ----------
    names
        Their names, or other expressions; without any, all variables that hold arrays.

    Raises
    ------
    PlacementError
        There is no such variable.

    """
    shell = shell_here()
    if names:
        return Where(_devices_by_name({name: evaluated(shell, name) for name in names}))
    budget = Budget()
    found = _devices_by_name(variables_of(shell.user_ns, shell.user_ns_hidden), budget)
    return Where({name: devices for name, devices in found.items() if devices}, budget.unfinished)


def _devices_by_name(variables: Mapping[str, object], budget: Budget | None = None) -> dict[str, Devices]:
    """Return `devices_of` for each of several variables; the machine is read once for all of them."""
    machine, memory = LazySnapshot(), {}
    for name, value in variables.items():
        with budget.variable(name) if budget is not None else nullcontext():
            memory[name] = memory_by_device([value], budget)
    return {name: Devices(here, labels(here, machine)) for name, here in memory.items()}


def shell_here() -> Any:
    """Return this process's IPython shell; None where there is none."""
    ipython = sys.modules.get("IPython.core.getipython")
    return ipython.get_ipython() if ipython is not None else None


def unfinished_text(names: Sequence[str]) -> str:
    """Say which variables hold more than was looked at."""
    more = [f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
    return f"Not looked at in full, as that would take too long: {listed([*names[:_MOST_NAMES], *more])}."


def named_sizes(sizes: Mapping[str, int], most: int = _MOST_NAMES) -> list[str]:
    """Return `model (1.2 GiB)` for each, the largest first; the last one is for all beyond `most`."""
    names = sorted(sizes, key=lambda name: -sizes[name])
    rest = names[most:]
    more = [f"{len(rest)} more ({size_text(sum(sizes[name] for name in rest))})"] if rest else []
    return [*(f"{name} ({size_text(sizes[name])})" for name in names[:most]), *more]
