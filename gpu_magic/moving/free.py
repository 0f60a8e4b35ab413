"""Gives memory back, and says what still holds the rest."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.frameworks import imported
from gpu_magic.placement.holdings import holdings_of
from gpu_magic.placement.physical import described, used_by_us
from gpu_magic.selection.target import LogicalDevice
from gpu_magic.text import size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Hashable, Iterable, Mapping

    from gpu_magic.frameworks.base import Holding

__all__ = ["Freed", "free", "held", "holders", "nameless"]

_LONGEST = 10  # names


class Freed(NamedTuple):
    """What was in use on each GPU, before and after. Shows itself as text.

    Parameters
    ----------
    before, after
        Bytes that this process has of each GPU, by what it is called here (`"cuda:0"`): the driver's figure,
        else the frameworks' own.
    labels
        Each with its physical GPU: `cuda:0 = GPU 1 (NVIDIA A100 80GB)`.
    notes
        What a framework does not give back.

    """

    before: Mapping[str, int]
    after: Mapping[str, int]
    labels: Mapping[str, str]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        used = [name for name in self.before if self.before[name] or self.after[name]]
        if not used:
            return "This process has no memory on a GPU."
        lines = [
            f"{self.labels[name]}: {size_text(self.before[name])} → {size_text(self.after[name])} in use"
            for name in used
        ]
        return "\n".join([*lines, *self.notes])


def free(drop: Callable[[], None] | None = None) -> Freed:
    """See `gpu_magic.gpu_free`.

    Parameters
    ----------
    drop
        Drops references first; what they held counts as in use before.

    """
    before = _in_use()
    if drop is not None:
        drop()
    gc.collect()
    notes = tuple(filter(None, (framework.empty_cache() for framework in imported())))
    after = _in_use()
    return Freed(
        {str(place): size for place, size in before.items()},
        {str(place): after.get(place, 0) for place in before},
        dict(zip(map(str, before), described(list(before)), strict=True)),
        notes,
    )


def held(value: object, besides: Container[Hashable] = ()) -> int:
    """Return how many bytes a variable holds on GPUs, besides memory of these keys."""
    found = holdings_of([value]).items()
    return sum(one.nbytes for key, one in found if key not in besides and _is_on_gpu(one))


def _is_on_gpu(holding: Holding) -> bool:
    return isinstance(holding.device, LogicalDevice) and holding.device.kind == "gpu"


def holders(variables: Iterable[tuple[str, object]]) -> str:
    """Say what still holds memory on GPUs: names by size; empty for nothing."""
    sizes = {name: size for name, value in variables if (size := held(value))}
    first = sorted(sizes, key=lambda name: -sizes[name])
    named = [f"{name} ({size_text(sizes[name])})" for name in first[:_LONGEST]]
    more = [f"{len(first) - _LONGEST} more"] * (len(first) > _LONGEST)
    return f"Still held by {', '.join([*named, *more])}." if named else ""


def nameless(variables: Iterable[object]) -> int:
    """Return how many bytes the frameworks count on GPUs that no variable leads to."""
    used = sum(pool.used for framework in imported() for pool in framework.pools().values())
    return max(0, used - held(list(variables)))


def _in_use() -> dict[LogicalDevice, int]:
    found: dict[LogicalDevice, int] = {}
    for framework in imported():
        for place, pool in framework.pools().items():
            found[place] = found.get(place, 0) + pool.reserved
    for place in found:
        ours = used_by_us(place)
        if ours is not UNKNOWN:
            found[place] = ours
    return found
