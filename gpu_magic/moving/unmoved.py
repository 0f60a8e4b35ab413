"""Objects with arrays that are not moved: what is said of them, and what would move their parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.frameworks import device_like
from gpu_magic.moving.graph import Graph
from gpu_magic.placement.holdings import holdings_of, is_same_device
from gpu_magic.text import listed, printable, size_text, with_article

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from gpu_magic.selection.target import LogicalDevice

__all__ = ["UnmovedObject", "unmoved_text"]

# How many parts are named that could be moved.
_MAX_PARTS = 3


class UnmovedObject(NamedTuple):
    """An object that stays where it is.

    Parameters
    ----------
    name
        The variable that it was found in.
    is_variable
        Whether it is that variable's value, and not a part of it.
    obj
        The object.
    reason
        Why it stays, where a framework says that: a sentence.

    """

    name: str
    is_variable: bool
    obj: Any
    reason: str


def unmoved_text(unmoved: UnmovedObject, device: LogicalDevice, moved: Collection[Hashable]) -> str:
    """Return a sentence: what stays, and what would move it; empty if it has nothing elsewhere.

    Parameters
    ----------
    unmoved
        The object.
    device
        The device that the rest is moved to.
    moved
        The keys of the memory that is moved.

    """
    rest = [
        holding
        for key, holding in holdings_of([unmoved.obj]).items()
        if key not in moved and not is_same_device(holding.device, device)
    ]
    if not rest:
        return ""
    cls, name = type(unmoved.obj), unmoved.name or "it"
    devices = listed(sorted({str(one.device) for one in rest}))
    where = f"{size_text(sum(one.nbytes for one in rest))} on {devices}"
    parts, remembers = _parts(unmoved.obj, device)
    if unmoved.reason:
        subject = unmoved.reason.removesuffix(".")
    else:
        kind = f"{cls.__name__} of {_package(unmoved.obj)}"
        verb = "is" if unmoved.is_variable else "holds"
        subject = f"{name} {verb} {with_article(kind)}, which can't be moved as a whole"
    way = _way(unmoved, parts, remembers) if not unmoved.reason or parts else ""
    return printable(f"{subject} ({where}){way}.")


def _package(obj: Any) -> str:
    return type(obj).__module__.partition(".")[0]


def _way(unmoved: UnmovedObject, parts: list[str], remembers: list[str]) -> str:
    """Return what would move its parts, as a clause."""
    if not parts:
        return ": create it again in a cell with %%on_gpu"
    if unmoved.is_variable and unmoved.name:
        named, prefix = " ".join(f"{unmoved.name}.{part}" for part in parts), f"{unmoved.name}."
        way = f": %to_gpu {named} moves its parts"
    else:
        prefix = "its ."
        way = f": move {listed(f'{prefix}{part}' for part in parts)}"
    return f"{way}; then set {listed(f'{prefix}{name}' for name in remembers)}" if remembers else way


def _parts(obj: Any, device: LogicalDevice) -> tuple[list[str], list[str]]:
    """Return the names of an object's attributes that can be moved, and of those that are a device."""
    parts: list[str] = []
    remembers: list[str] = []
    for name, value in dict(getattr(obj, "__dict__", {})).items():
        if device_like(value, device) is not None:
            remembers.append(name)
        elif not name.startswith("_") and len(parts) < _MAX_PARTS and _can_move(value, device):
            parts.append(name)
    return parts, remembers


def _can_move(value: Any, device: LogicalDevice) -> bool:
    try:
        found = Graph(device).add(value)
    except Exception:  # noqa: BLE001 - whatever an object raises, or why a framework refuses it
        return False
    return bool(found.arrays) and not found.unmovable
