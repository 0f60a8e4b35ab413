"""Moves arrays that are never changed in place: each is copied, and the copy replaces it."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from gpu_magic.frameworks.transfer import Load, Transfer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["CopyTransfer"]


class CopyTransfer(Transfer):
    """Copies arrays one by one; an array that has several names is copied once.

    A framework implements `origin`, `nbytes` and `copied`.
    """

    def __init__(self) -> None:
        self._arrays: dict[int, tuple[Any, int]] = {}  # each with its size in bytes, by id
        self._copies: dict[int, Any] = {}

    @abstractmethod
    def origin(self, array: Any) -> str:
        """Return the device that an array is on, as users write it; empty where it need not be moved.

        Raises
        ------
        PlacementError
            It can't be moved.

        """

    @abstractmethod
    def nbytes(self, array: Any) -> int:
        """Return how many bytes an array adds to what is copied. It is called once for each array."""

    @abstractmethod
    def copied(self, array: Any) -> Any:
        """Return a copy of an array on the device, once it is there."""

    def add(self, arrays: Sequence[Any]) -> Load:
        count, nbytes, origins = 0, 0, set()
        for array in arrays:
            if id(array) in self._arrays or not (origin := self.origin(array)):
                continue
            size = self.nbytes(array)
            self._arrays[id(array)] = array, size
            count += 1
            nbytes += size
            origins.add(origin)
        return Load(count, nbytes, origins)

    def copy(self) -> Iterator[int]:
        for key, (array, size) in self._arrays.items():
            self._copies[key] = self.copied(array)
            yield size

    def commit(self) -> None:
        """Do nothing: no array stays the same object."""

    def replacement(self, array: Any) -> Any:
        return self._copies.get(id(array), array)

    def undo(self) -> None:
        """Do nothing: the arrays were not changed."""

    def before(self) -> Iterable[Any]:
        return (array for array, _ in self._arrays.values())
