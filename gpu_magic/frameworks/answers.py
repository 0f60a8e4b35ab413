"""What plug-ins for frameworks return, as plain data: memory, the parts of objects, and what errors say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from gpu_magic.selection.target import LogicalDevice

__all__ = ["Components", "Holding", "MemoryPool", "OutOfMemory"]


class Holding(NamedTuple):
    """A piece of memory that a variable holds.

    Parameters
    ----------
    device
        Where it is; the framework's own name where that is neither a CPU nor a GPU.
    nbytes
        Its size in bytes.
    key
        The same for two variables that share the memory (views, tied weights).

    """

    device: LogicalDevice | str
    nbytes: int
    key: Hashable


class Components(NamedTuple):
    """What an object is made of, and how to replace it.

    Parameters
    ----------
    children
        The objects that it holds.
    put
        Called with the present children and as many new ones; returns the object with the new ones. An
        object that is changed in place is written to only where the two differ. None: its children can't be
        replaced.
    in_place
        Whether `put` changes the object in place and returns it; False where it returns a new object.

    """

    children: Sequence[Any]
    put: Callable[[Sequence[Any], Sequence[Any]], Any] | None = None
    in_place: bool = True


class MemoryPool(NamedTuple):
    """A framework's memory on one GPU, in bytes.

    Parameters
    ----------
    used
        What its arrays take.
    reserved
        What it has allocated from the driver, used or not.
    peak
        The most that its arrays took since it started, or since `reset_peaks`; None: it does not count that.
    allocations
        How many it has ever made: where they are more than before, something was computed there meanwhile;
        None: it does not count them.

    """

    used: int
    reserved: int
    peak: int | None = None
    allocations: int | None = None


class OutOfMemory(NamedTuple):
    """What an error says that was raised as memory ran out.

    Parameters
    ----------
    device
        Where; None where it does not say.
    wanted
        The bytes that were asked for; None where it does not say.

    """

    device: LogicalDevice | None
    wanted: int | None
