"""On which devices variables live, in every framework, and how many bytes they take there."""

from __future__ import annotations

import sys
from collections import UserDict, UserList, deque
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import MemberDescriptorType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.table import bytes_text
from gpu_magic.frameworks import imported
from gpu_magic.frameworks.base import Holding
from gpu_magic.placement.physical import described
from gpu_magic.selection.target import Place

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from gpu_magic.frameworks.base import Framework

__all__ = ["Devices", "devices_of"]

# What holds nothing, and is met most often.
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type)
_CONTAINERS: tuple[type, ...] = (list, tuple, set, frozenset, deque, type({}.values()))


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
    strangers: set[type] = set()  # types that nobody knows
    open_: list[Any] = list(things)
    while open_:
        thing = open_.pop()
        kind = type(thing)
        if kind in strangers or issubclass(kind, _PLAIN) or id(thing) in seen:
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
        open_.extend(parts or ())
    sizes: dict[Place | str, tuple[int, int]] = {}
    for device, size, _ in held.values():
        total, count = sizes.get(device, (0, 0))
        sizes[device] = total + size, count + 1
    return Devices(sizes)


def _ask(
    thing: Any, kind: type, frameworks: list[Framework]
) -> tuple[Sequence[Holding] | None, list[Any] | None]:
    """Return what an object holds itself, or else what it is made of; neither for what nobody knows.

    It goes by types: an object can claim to be of another class, and can raise whatever it is asked.
    """
    if issubclass(kind, dict):
        return None, list(dict.values(thing))
    if issubclass(kind, _CONTAINERS):
        return None, [*kind.__iter__(thing)]  # type: ignore[attr-defined] # they have one
    for framework in frameworks:
        memory = framework.memory(thing)
        if memory is not None:
            return memory, None
    for framework in frameworks:
        parts = framework.parts(thing)
        if parts is not None:
            return None, list(parts)
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, numpy.ndarray):
        return [_numpy(thing, numpy)], list(thing.flat) if thing.dtype == object else None
    return None, _attributes(thing, kind)


def _numpy(array: Any, numpy: Any) -> Holding:
    """Return what an array occupies, and where that begins: what its views share, PyTorch's and JAX's too."""
    while isinstance(array.base, numpy.ndarray):
        array = array.base
    low, high = numpy.lib.array_utils.byte_bounds(array)  # a view can repeat itself
    return Holding(Place("cpu", 0), high - low, ("address", low))


def _attributes(thing: Any, kind: type) -> list[Any] | None:
    """Return what a dataclass, or an object of the user's own class (a trainer, a batch), keeps."""
    if issubclass(kind, partial):
        return [thing.args, thing.keywords]
    if is_dataclass(kind):
        return [getattr(thing, field.name, None) for field in fields(kind)]
    if kind.__module__ != "__main__" and not issubclass(kind, SimpleNamespace | UserDict | UserList):
        return None
    slots = [one for base in kind.__mro__ for one in vars(base).values() if type(one) is MemberDescriptorType]
    filled = [slot.__get__(thing) for slot in slots if _is_filled(slot, thing)]
    return [*getattr(thing, "__dict__", {}).values(), *filled]


def _is_filled(slot: MemberDescriptorType, thing: Any) -> bool:
    try:
        slot.__get__(thing)
    except AttributeError:
        return False
    return True


def _size(size: int) -> str:
    """Write small sizes, too: a figure of 0 MiB says nothing."""
    if size < 1 << 10:
        return f"{size} bytes"
    return f"{size / (1 << 10):.1f} KiB" if size < 1 << 20 else bytes_text(size)
