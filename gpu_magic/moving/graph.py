"""All that variables are made of, and how it hangs together: what is moved, and what has to be built anew."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks import imported
from gpu_magic.placement.components import COMMON, PLAIN, attributes_of, can_change, items_of
from gpu_magic.placement.holdings import holdings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gpu_magic.frameworks.base import Components, Framework
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["Change", "Found", "Graph"]


class Found(NamedTuple):
    """What a variable holds that no variable before it did.

    Parameters
    ----------
    arrays
        By the framework's module: arrays, and objects that move themselves.
    fixed
        Why something can't be moved, and what to do.
    left
        NumPy's arrays that stay as they are.
    shared
        The numbers of variables before it that hold something of it as well, from 1.

    """

    arrays: dict[str, list[Any]]
    fixed: list[str]
    left: list[Any]
    shared: set[int]


class Change(NamedTuple):
    """New parts for an object that stays the same one."""

    parts: Components
    new: Sequence[Any]

    def make(self) -> None:
        if self.parts.put:
            self.parts.put(self.parts.children, self.new)

    def undo(self) -> None:
        if self.parts.put:
            self.parts.put(self.new, self.parts.children)


class _Kind(NamedTuple):
    """What is known of a type."""

    fixed: str
    owner: Framework | None


class Graph:
    """Objects and what they hold, to any depth and with cycles. It reads, and changes nothing.

    Parameters
    ----------
    place
        Where things are to go.
    converts
        The module of the framework that NumPy arrays become arrays of; None: they stay.

    """

    def __init__(self, place: LogicalDevice, converts: str | None = None) -> None:
        self._place, self._converts = place, converts
        self._frameworks = imported()
        self._kinds: dict[type, _Kind] = {}
        self._strangers: set[type] = set()
        self._seen: dict[int, Any] = {}  # kept, so that no two objects have the same id
        self._first: dict[int, int] = {}  # the number of the variable that it was first seen in
        self._count = 0
        self._parts: dict[int, Components] = {}
        self._arrays: set[int] = set()
        self._now: dict[int, Any] = {}  # what stands in the place of a thing, by the thing's id

    def add(self, root: Any) -> Found:
        """Look at all that hangs off a variable."""
        found = Found({}, [], [], set())
        self._count += 1
        open_ = [root]
        while open_:
            thing = open_.pop()
            kind = type(thing)
            if kind in self._strangers or issubclass(kind, PLAIN):
                continue
            if id(thing) in self._seen:
                if id(thing) in self._parts or id(thing) in self._arrays:
                    found.shared.add(self._first[id(thing)])
                continue
            self._seen[id(thing)] = thing
            self._first[id(thing)] = self._count
            try:
                parts = self._take(thing, kind, found)
            except PlacementError:
                raise
            except Exception:  # noqa: BLE001, S112 - objects can raise whatever they are asked, and are left then
                continue
            if parts is not None:
                self._parts[id(thing)] = parts
                open_ += parts.children
        self._arrays.update(id(one) for arrays in found.arrays.values() for one in arrays)
        found.shared.discard(self._count)
        return found

    def _take(self, thing: Any, kind: type, found: Found) -> Components | None:
        """Sort an object in, or return what it is made of."""
        known = self._kinds.get(kind) or self._know(kind)
        if known.fixed:
            if {one.device for one in holdings_of([thing]).values()} != {self._place}:
                found.fixed.append(known.fixed)
            return None
        if (parts := self._made_of(thing, kind, known.owner)) is not None:
            return parts
        if known.owner is not None:
            found.arrays.setdefault(known.owner.module, []).append(thing)
        elif _is_numpy(kind):
            if self._converts is not None and _is_plain_numpy(kind) and thing.dtype.kind in "biufc":
                found.arrays.setdefault(self._converts, []).append(thing)
            else:
                found.left.append(thing)
        elif (parts := attributes_of(thing, kind)) is None:
            if (mover := self._mover(thing, kind)) is not None:
                found.arrays.setdefault(mover.module, []).append(thing)
            elif not hasattr(kind, "to"):
                self._strangers.add(kind)
        return parts

    def _know(self, kind: type) -> _Kind:
        fixed = next(filter(None, (one.unmovable(kind) for one in self._frameworks)), "")
        owner = next((one for one in self._frameworks if one.is_array(kind)), None)
        known = self._kinds[kind] = _Kind(fixed, owner)
        return known

    def _made_of(self, thing: Any, kind: type, owner: Framework | None) -> Components | None:
        if owner is not None:
            return owner.components(thing, self._place)
        if not issubclass(kind, COMMON):
            for framework in self._frameworks:
                parts = framework.components(thing, self._place)
                if parts is not None and (parts.is_kept or not can_change(kind)):
                    return parts
        return items_of(thing, kind)

    def _mover(self, thing: Any, kind: type) -> Framework | None:
        """Return the framework whose arrays an object has that moves itself."""
        if not hasattr(kind, "to"):
            return None
        return next((one for one in self._frameworks if one.moves_itself(thing)), None)

    def rebuild(self, replacement: Callable[[Any], Any]) -> list[Change]:
        """Build anew what holds what was replaced, where it can't be changed; return the rest's changes."""
        leaves = (thing for key, thing in self._seen.items() if key not in self._parts)
        pairs = ((thing, replacement(thing)) for thing in leaves)
        self._now = {id(thing): new for thing, new in pairs if new is not thing}
        if not self._now:
            return []
        holders = self._holders()
        touched = _above(self._now, holders, lambda key: not self._parts[key].is_kept)
        anew = {key for key in touched if not self._parts[key].is_kept}
        waits = {key: len({id(one) for one in self._parts[key].children} & anew) for key in anew}
        ready = [key for key, count in waits.items() if not count]
        while ready:
            key = ready.pop()
            parts = self._parts[key]
            self._now[key] = parts.put(parts.children, self._current(parts)) if parts.put else self._seen[key]
            for holder in holders.get(key, set()) & anew:
                waits[holder] -= 1
                if not waits[holder]:
                    ready.append(holder)
        if any(waits.values()):
            odd = next(type(self._seen[key]).__name__ for key, count in waits.items() if count)
            raise PlacementError(f"A {odd} that can't be changed holds itself, and can't be built anew.")
        return [Change(self._parts[key], self._current(self._parts[key])) for key in touched - anew]

    def kept(self) -> set[int]:
        """Return the ids of the arrays that still stand where they stood."""
        return self._arrays - self._now.keys()

    def objects(self) -> Iterator[Any]:
        """Return all that is made of other things."""
        return (self._seen[key] for key in self._parts)

    def now(self, thing: Any) -> Any:
        """Return what stands in the place of a thing after `rebuild`; the thing itself where it stays."""
        return self._now.get(id(thing), thing)

    def _current(self, parts: Components) -> list[Any]:
        return [self.now(one) for one in parts.children]

    def _holders(self) -> dict[int, set[int]]:
        """Return, for each object, those that hold it."""
        found: dict[int, set[int]] = {}
        for key, parts in self._parts.items():
            for thing in parts.children:
                found.setdefault(id(thing), set()).add(key)
        return found


def _above(start: Iterable[int], holders: dict[int, set[int]], goes_on: Callable[[int], bool]) -> set[int]:
    """Return all that holds what is replaced, or what has to be built anew because of it."""
    found: set[int] = set()
    open_ = list(start)
    while open_:
        for holder in holders.get(open_.pop(), ()):
            if holder not in found:
                found.add(holder)
                if goes_on(holder):
                    open_.append(holder)
    return found


def _is_numpy(kind: type) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, numpy.ndarray)


def _is_plain_numpy(kind: type) -> bool:
    """Tell whether an array is nothing more: a mask, or units, would be lost."""
    numpy: Any = sys.modules["numpy"]
    return kind in (numpy.ndarray, numpy.memmap)
