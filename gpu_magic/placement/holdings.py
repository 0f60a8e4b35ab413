"""On which devices variables live, in every framework, and how many bytes they take there."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpu_magic.frameworks import imported
from gpu_magic.frameworks.base import Holding
from gpu_magic.placement.components import COMMON, PLAIN, attributes_of, items_of
from gpu_magic.placement.physical import described
from gpu_magic.selection.target import LogicalDevice
from gpu_magic.text import size_text

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from gpu_magic.frameworks.base import Components, Framework

__all__ = ["Devices", "devices_of", "holdings_of"]


class Devices(Mapping[str, int]):
    """Bytes by device: `{"cuda:0": 4000, "cpu": 400}`. Shows itself with the physical GPUs.

    Parameters
    ----------
    sizes
        The bytes and the number of arrays on each device.

    """

    def __init__(self, sizes: Mapping[LogicalDevice | str, tuple[int, int]]) -> None:
        self._sizes = dict(sorted(sizes.items(), key=lambda item: str(item[0])))

    def __getitem__(self, name: str) -> int:
        return {str(place): size for place, (size, _) in self._sizes.items()}[name]

    def __iter__(self) -> Iterator[str]:
        return map(str, self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def lines(self) -> list[str]:
        """One line for each device: `cuda:0 = GPU 1 (NVIDIA A100 80GB): 1.2 GiB in 148 arrays`."""
        places = [place for place in self._sizes if isinstance(place, LogicalDevice)]
        names = dict(zip(places, described(places), strict=True))
        return [
            f"{names[place] if isinstance(place, LogicalDevice) else place}: {size_text(size)}"
            f"{f' in {count} arrays' if count > 1 else ''}"
            for place, (size, count) in self._sizes.items()
        ]

    def __repr__(self) -> str:
        return "\n".join(self.lines) or "No arrays."


def devices_of(things: Iterable[object]) -> Devices:
    """See `gpu_magic.devices_of`."""
    sizes: dict[LogicalDevice | str, tuple[int, int]] = {}
    for device, size, _ in holdings_of(things).values():
        total, count = sizes.get(device, (0, 0))
        sizes[device] = total + size, count + 1
    return Devices(sizes)


def holdings_of(things: Iterable[object]) -> dict[Hashable, Holding]:
    """Return the memory that variables hold, by what is the same for those that share it."""
    frameworks = imported()
    held: dict[Hashable, Holding] = {}
    seen: dict[int, object] = {}  # kept, so that no two objects have the same id
    strangers: set[type] = set()  # types that nobody knows
    open_: list[Any] = list(things)
    while open_:
        thing = open_.pop()
        kind = type(thing)
        if kind in strangers or issubclass(kind, PLAIN) or id(thing) in seen:
            continue
        seen[id(thing)] = thing
        try:
            memory, parts = _ask(thing, kind, frameworks)
        except Exception:  # noqa: BLE001, S112 - variables can be anything, and one must not hide the others
            continue
        if memory is None and parts is None:
            strangers.add(kind)
        for holding in memory or ():
            held.setdefault(holding.key, holding)
        open_.extend(parts.children if parts else ())
    return held


def _ask(
    thing: Any, kind: type, frameworks: list[Framework]
) -> tuple[Sequence[Holding] | None, Components | None]:
    """Return what an object holds itself, or else what it is made of; neither for what nobody knows."""
    for framework in frameworks:
        if framework.is_array(kind):
            return framework.holdings(thing), None
    if not issubclass(kind, COMMON):
        for framework in frameworks:
            if parts := framework.components(thing):
                return None, parts
    numpy = sys.modules.get("numpy")
    own = [_numpy(thing, numpy)] if numpy is not None and issubclass(kind, numpy.ndarray) else None
    return own, items_of(thing, kind) or attributes_of(thing, kind)


def _numpy(array: Any, numpy: Any) -> Holding:
    """Return what an array occupies, and where that begins: what its views share, PyTorch's and JAX's too."""
    while isinstance(array.base, numpy.ndarray):
        array = array.base
    low, high = numpy.lib.array_utils.byte_bounds(array)  # a view can repeat itself
    return Holding(LogicalDevice("cpu", 0), high - low, ("address", low))
