"""Copies arrays that are never changed in place: JAX's, TensorFlow's, CuPy's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from gpu_magic.frameworks.base import Framework
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["Copies", "Load"]


class Load(NamedTuple):
    """How much there is to move."""

    arrays: int = 0  # those on other devices
    nbytes: int = 0  # what their copies take; shared memory counts once
    origins: Sequence[str] | set[str] = ()  # where they are now, as users write it


class Copies:
    """Moves arrays of one framework to one device, all or none: each is copied, and the copy replaces it.

    It is called in this order: `add` (any number of times), `copy`, `commit`, `replacement`; and `undo` where
    something failed, at whichever step.
    """

    def __init__(self, framework: Framework, device: LogicalDevice) -> None:
        self._framework, self._target = framework, device
        self._arrays: dict[int, tuple[Any, int]] = {}  # each with its size in bytes, by id
        self._new: dict[int, Any] = {}
        self._memory: set[Hashable] = set()  # what was counted
        self._memo: dict[Any, Any] = {}  # the framework's own, for memory that arrays share

    def add(self, arrays: Sequence[Any]) -> Load:
        """Add arrays, and return how much that adds. Nothing is allocated.

        Raises
        ------
        PlacementError
            One of them can't be moved. The message names it by its shape and says why.

        """
        count, nbytes, origins = 0, 0, set[str]()
        for array in arrays:
            if id(array) in self._arrays or not (origin := self._framework.origin(array, self._target)):
                continue
            size = self._size(array)
            self._arrays[id(array)] = array, size
            count, nbytes = count + 1, nbytes + size
            origins.add(origin)
        return Load(count, nbytes, origins)

    def _size(self, array: Any) -> int:
        """Return how many bytes an array adds; one that has several pieces of memory is copied as one."""
        held = self._framework.holdings(array) if self._framework.is_array(type(array)) else ()
        if len(held) != 1:
            return int(array.nbytes)
        is_new = held[0].key not in self._memory
        self._memory.add(held[0].key)
        return held[0].nbytes if is_new else 0

    def copy(self) -> Iterator[int]:
        """Make the copies; yield the size of each piece in bytes once it is copied."""
        for key, (array, size) in self._arrays.items():
            self._new[key] = self._framework.copied(array, self._target, self._memo)
            yield size

    def commit(self) -> None:
        """Give the memory of its copy to each array that stays the same object."""

    def replacement(self, array: Any) -> Any:
        """Return the array that takes the place of another, after `commit`; itself where it stays."""
        return self._new.get(id(array), array)

    def undo(self) -> None:
        """Take back what `copy` and `commit` have changed, as far as they came."""

    def before(self) -> Iterator[Any]:
        """Return arrays that cover all the memory that the moved ones had before."""
        return (array for array, _ in self._arrays.values())
