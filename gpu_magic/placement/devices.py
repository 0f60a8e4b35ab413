"""On which devices variables live, in every framework, and how many bytes they take there."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.table import bytes_text
from gpu_magic.frameworks import imported
from gpu_magic.frameworks.base import Holding
from gpu_magic.placement.physical import described
from gpu_magic.selection.target import Place

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from gpu_magic.frameworks.base import Framework

__all__ = ["Devices", "devices_of"]

# What holds nothing, and is met most often.
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type)


class Devices(Mapping[str, int]):
    """Bytes by device: `{"cuda:0": 4000, "cpu": 400}`. Shows itself with the physical GPUs.

    Parameters
    ----------
    sizes
        The bytes and the number of arrays on each device.

    """

    def __init__(self, sizes: Mapping[Place | str, tuple[int, int]]) -> None:
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
        places = [place for place in self._sizes if isinstance(place, Place)]
        names = dict(zip(places, described(places), strict=True))
        return [
            f"{names[place] if isinstance(place, Place) else place}: {_size(size)}"
            f"{f' in {count} arrays' if count > 1 else ''}"
            for place, (size, count) in self._sizes.items()
        ]

    def __repr__(self) -> str:
        return "\n".join(self.lines) or "No arrays."


def devices_of(things: Iterable[object]) -> Devices:
    """See `gpu_magic.devices_of`."""
    frameworks = imported()
    held: dict[Hashable, Holding] = {}
    seen: dict[int, object] = {}  # kept, so that no two objects have the same id
    open_: list[Any] = list(things)
    while open_:
        thing = open_.pop()
        if isinstance(thing, _PLAIN) or id(thing) in seen:
            continue
        seen[id(thing)] = thing
        memory, parts = _ask(thing, frameworks)
        for holding in memory:
            held.setdefault(holding.key, holding)
        open_.extend(parts)
    sizes: dict[Place | str, tuple[int, int]] = {}
    for device, size, _ in held.values():
        total, count = sizes.get(device, (0, 0))
        sizes[device] = total + size, count + 1
    return Devices(sizes)


def _ask(thing: Any, frameworks: list[Framework]) -> tuple[Iterable[Holding], Iterable[Any]]:
    """Return what an object holds itself, and what it is made of."""
    if isinstance(thing, Mapping):
        return (), thing.values()
    if isinstance(thing, list | tuple | set | frozenset):
        return (), thing
    for framework in frameworks:
        memory = framework.memory(thing)
        if memory is not None:
            return memory, ()
    for framework in frameworks:
        parts = framework.parts(thing)
        if parts is not None:
            return (), parts
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(thing, numpy.ndarray):
        whole = thing
        while isinstance(whole.base, numpy.ndarray):  # what its views share
            whole = whole.base
        return (Holding(Place("cpu", 0), whole.nbytes, ("NumPy", id(whole))),), (whole,)
    return (), _attributes(thing)


def _attributes(thing: Any) -> Iterable[Any]:
    """Return what a dataclass, or an object of the user's own class (a trainer, a batch), keeps."""
    if is_dataclass(thing):
        return [getattr(thing, field.name, None) for field in fields(thing)]
    return getattr(thing, "__dict__", {}).values() if type(thing).__module__ == "__main__" else ()


def _size(size: int) -> str:
    """Write small sizes, too: a figure of 0 MiB says nothing."""
    if size < 1 << 10:
        return f"{size} bytes"
    return f"{size / (1 << 10):.1f} KiB" if size < 1 << 20 else bytes_text(size)
