"""Moves arrays that are never changed in place: each is copied, and stands where the old one stood."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.frameworks.base import Load, Transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["CopyMethod", "CopyTransfer"]


class CopyMethod(NamedTuple):
    """How a framework copies one array to a place.

    Parameters
    ----------
    origin
        Returns where it is, as users call it; empty where it is there already.
    nbytes
        Returns what its copy takes, in bytes.
    copy
        Makes the copy, and waits until it is there.

    """

    origin: Callable[[Any], str]
    nbytes: Callable[[Any], int]
    copy: Callable[[Any], Any]


class CopyTransfer(Transfer):
    """Copies arrays; one that has several names is copied once.

    Parameters
    ----------
    way
        How one is copied.

    """

    def __init__(self, way: CopyMethod) -> None:
        self._way = way
        self._seen: dict[int, tuple[Any, int]] = {}
        self._new: dict[int, Any] = {}

    def add(self, things: Sequence[Any]) -> Load:
        count, nbytes, origins = 0, 0, set()
        for thing in things:
            if id(thing) in self._seen or not (origin := self._way.origin(thing)):
                continue
            size = self._way.nbytes(thing)
            self._seen[id(thing)] = thing, size
            count += 1
            nbytes += size
            origins.add(origin)
        return Load(count, nbytes, origins)

    def copy(self) -> Iterator[int]:
        for key, (thing, size) in self._seen.items():
            self._new[key] = self._way.copy(thing)
            yield size

    def commit(self) -> None: ...

    def replacement(self, thing: Any) -> Any:
        return self._new.get(id(thing), thing)

    def undo(self) -> None: ...

    def before(self) -> Iterable[Any]:
        return (thing for thing, _ in self._seen.values())
