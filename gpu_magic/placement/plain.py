"""Finds out fast which containers hold nothing but plain values: tables of numbers, records of text."""

from __future__ import annotations

from collections import deque
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from gpu_magic.placement.components import PLAIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["PlainValues"]

# Containers that are looked through here, of exactly these types: others can have attributes.
_SEQUENCES = frozenset((tuple, list, set, frozenset, deque))
_FEW = 16
# How many cells a row has at most, on average.
_CELLS = 16
_END = object()
# How many levels of containers are looked through at once: `[{"a": [1, 2]}]` has two below the list.
_DEPTH = 3


class PlainValues:
    """Values that lead to no array, which are most of what notebooks hold. Their types tell them apart.

    Each container is looked through once, whoever holds it.

    Attributes
    ----------
    types
        The types of plain values. The one who finds another type without components adds it.

    """

    def __init__(self) -> None:
        self.types: set[type] = set(PLAIN)
        # Containers by id. They are kept, so that no two have the same id.
        self._plain: dict[int, Any] = {}
        self._others: dict[int, Any] = {}

    def without(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the values that may lead to an array; of a few all, as that takes less time."""
        if len(values) < _FEW:
            return values
        kinds = set(map(type, values)) - self.types
        if not kinds or (kinds <= _SEQUENCES and self._are_rows(values)):
            return ()
        return [value for value in values if not self._is_plain(value, _DEPTH)]

    def _are_rows(self, values: Sequence[Any]) -> bool:
        """Return whether values are plain, or short rows of plain values, of which there can be a million."""
        rows = [value for value in values if type(value) not in self.types]
        cells = chain.from_iterable(rows)
        first = islice(cells, _CELLS * len(rows))
        return self.types.issuperset(map(type, first)) and next(cells, _END) is _END

    def _is_plain(self, value: Any, depth: int) -> bool:
        cls = type(value)
        if cls in self.types:
            return True
        if cls not in _SEQUENCES and cls is not dict:
            return False
        key = id(value)
        if key in self._plain:
            return True
        if key in self._others:
            return False
        is_plain = self._are_plain(value, depth)
        if cls is dict and is_plain:
            is_plain = self._are_plain(value.values(), depth)
        (self._plain if is_plain else self._others)[key] = value
        return is_plain

    def _are_plain(self, values: Iterable[Any], depth: int) -> bool:
        if self.types.issuperset(map(type, values)):
            return True
        return depth > 0 and all(self._is_plain(value, depth - 1) for value in values)
