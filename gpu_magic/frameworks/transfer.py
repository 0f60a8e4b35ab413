"""How arrays of one framework are moved: the abstract base class, and how much there is to move."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

__all__ = ["Load", "Transfer"]


class Load(NamedTuple):
    """How much there is to move.

    Parameters
    ----------
    arrays
        The number of arrays that are on other devices.
    nbytes
        What their copies will take, in bytes; shared memory counts once.
    origins
        The devices that they are on now, as users write them.

    """

    arrays: int = 0
    nbytes: int = 0
    origins: Collection[str] = ()


class Transfer(ABC):
    """Moves arrays of one framework to one device, all or none.

    It is called in this order: `add` (any number of times), `copy`, `commit`, `replacement`; and `undo` where
    something failed, at whichever step.
    """

    @abstractmethod
    def add(self, arrays: Sequence[Any]) -> Load:
        """Add arrays to the transfer, and return how much that adds to it. Nothing is allocated.

        Raises
        ------
        PlacementError
            One of them can't be moved. The message names it by its shape and says why.

        """

    @abstractmethod
    def copy(self) -> Iterator[int]:
        """Make the copies; yield the size of each piece in bytes once it is copied.

        The arrays themselves stay unchanged.
        """

    @abstractmethod
    def commit(self) -> None:
        """Give the memory of its copy to each array that stays the same object."""

    @abstractmethod
    def replacement(self, array: Any) -> Any:
        """Return the array that takes the place of another, after `commit`; itself where it stays."""

    @abstractmethod
    def undo(self) -> None:
        """Take back what `copy` and `commit` have changed, as far as they came."""

    @abstractmethod
    def before(self) -> Iterable[Any]:
        """Return arrays that cover all the memory that the moved ones had before."""
