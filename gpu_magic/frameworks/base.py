"""What gpu_magic knows how to ask of a framework, and to tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gpu_magic.errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gpu_magic.selection.memory import Memory
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["Components", "Framework", "Holding", "Load", "MemoryPool", "Transfer"]


class Holding(NamedTuple):
    """A piece of memory that a variable holds.

    Parameters
    ----------
    device
        Where it is; a framework's own name where that is no CPU or GPU.
    nbytes
        Its size in bytes.
    key
        The same for two variables that share it (views, tied weights).

    """

    device: LogicalDevice | str
    nbytes: int
    key: Hashable


class Components(NamedTuple):
    """What an object is made of, and how others are put in their place.

    Parameters
    ----------
    children
        The objects that it holds.
    put
        Takes the things it has and as many others, and returns the object with those; one that is changed in
        place is written to only where they differ. None: it can't be changed.
    is_kept
        Whether that is the same object, changed in place, and no new one.

    """

    children: Sequence[Any]
    put: Callable[[Sequence[Any], Sequence[Any]], Any] | None = None
    is_kept: bool = True


class Load(NamedTuple):
    """What there is to move.

    Parameters
    ----------
    arrays
        How many are elsewhere.
    nbytes
        What they will take, in bytes: what shares memory counts once.
    origins
        Where they are now, as users call it.

    """

    arrays: int = 0
    nbytes: int = 0
    origins: Collection[str] = ()


class MemoryPool(NamedTuple):
    """A framework's memory on one GPU, in bytes.

    Parameters
    ----------
    used
        What its arrays take.
    reserved
        What it has from the driver, used or not.

    """

    used: int
    reserved: int


class Transfer(Protocol):
    """Moves a framework's arrays to one device, all or none: `add`, `copy`, `commit`, and maybe `undo`."""

    def add(self, things: Sequence[Any]) -> Load:
        """Take arrays along, and say what that adds. Nothing is allocated.

        Raises
        ------
        PlacementError
            One of them can't be moved: it names it by its shape and says why.

        """
        ...

    def copy(self) -> Iterator[int]:
        """Make the copies, and tell after each piece how many bytes it had. The arrays stay as they are."""
        ...

    def commit(self) -> None:
        """Have those that stay the same objects take their copy for their own."""
        ...

    def replacement(self, thing: Any) -> Any:
        """Return what is to stand where a thing stood: itself where it is moved in place. After `commit`."""
        ...

    def undo(self) -> None:
        """Take back what was committed, as far as it was."""
        ...

    def before(self) -> Iterable[Any]:
        """Return arrays over all the memory that the moved ones had before."""
        ...


class Framework(Protocol):
    """A library that computes on GPUs. No verb imports it; those with a body here are optional.

    `problem`, `name_of` and `narrow` ask it for its devices, which can start it; so can `scope` where it is
    going to be used.

    Parameters
    ----------
    name
        As its users write it.
    module
        What they import.
    needs
        Attributes that the module has, unless it is another one of that name.
    preallocates
        Whether it takes most of each GPU's memory when it starts: asking it for its devices can cost that.

    """

    name: str
    module: str
    needs: tuple[str, ...] = ()
    preallocates: bool = False

    def has_gpu(self) -> bool:
        """Whether it says that a GPU is among the devices it has started; False where it does not say."""
        return False

    def backend(self) -> str:
        """Return the module of the framework that it computes with; empty for itself."""
        return ""

    def statement_for(self, ordinal: int) -> str:
        """Return the line to type for working on `cuda:ordinal` from here on."""
        ...

    def problem(self, place: LogicalDevice) -> str:
        """Say why it can't compute there: a clause; empty where it can."""
        ...

    def name_of(self, place: LogicalDevice) -> str:
        """Return what it calls the place."""
        ...

    def resolved(self, place: LogicalDevice) -> LogicalDevice:
        """Return the place with the type of its own GPUs, where none was named and they are not CUDA's."""
        return place

    def raises_itself(self, place: LogicalDevice) -> bool:
        """Whether within `scope` it raises by itself, in plain words, where it can't compute there."""
        del place
        return False

    def scope(self, place: LogicalDevice, is_used: Callable[[], bool]) -> AbstractContextManager[Any]:
        """Make the place its default in this thread, for as long as the block runs.

        One that has not started is placed without being started, and gets the place when it does; where only
        a started one can be told, `is_used` says whether it is going to be used and may be started. Where it
        can't compute there, using it within the block raises, or the end of the block does.
        """
        ...

    def narrow(self, ordinals: Sequence[int]) -> tuple[str, AbstractContextManager[Any] | None]:
        """Make these GPUs the ones it uses from here on, in a process that CUDA was started in.

        Returns
        -------
        tuple
            A clause that says what it now uses, or why it could not be told; and what undoes it at its exit,
            None where nothing was changed.

        """
        ...

    def memory_variables(self, memory: Memory) -> Mapping[str, str]:
        """Return the environment variables that it reads when it starts, and that say this to it."""
        del memory
        return {}

    def limit_memory(self, memory: Memory) -> None:
        """Say it to one that is imported and has not started; an empty `Memory` takes back what was said."""
        del memory

    def is_array(self, kind: type) -> bool:
        """Whether objects of this type are its arrays."""
        del kind
        return False

    def holdings(self, thing: Any) -> Sequence[Holding]:
        """Return what one of its arrays occupies, on each device."""
        del thing
        return ()

    def components(self, thing: Any, to: LogicalDevice | None = None) -> Components | None:
        """Return what one of its objects (a model, an optimizer) is made of; None for anything else.

        With a place, only what has to be there with it: an optimizer's step count stays on the CPU.
        """
        del thing, to
        return None

    def unmovable(self, kind: type) -> str:
        """Say why objects of this type can't be moved, and what to do: a sentence; empty where they can."""
        del kind
        return ""

    def moves_itself(self, thing: Any) -> bool:
        """Whether an object that is no array of its has arrays of its, and a way of its own to move them."""
        del thing
        return False

    def transfer(self, place: LogicalDevice) -> Transfer:
        """Begin to move arrays there. Where it has not started, this starts it: it is going to be used."""
        del place
        raise PlacementError(f"{self.name}'s arrays can't be moved.")

    def finalize(self, things: Iterable[Any]) -> None:
        """Do what has to be done to objects once their arrays are on another device."""
        del things

    def free_bytes(self, place: LogicalDevice) -> int | None:
        """Return how much more it can allocate there; None where it can't tell without being started."""
        del place
        return None

    def pools(self) -> Mapping[LogicalDevice, MemoryPool]:
        """Return what it has of each GPU, as it counts; nothing where it has not started or can't tell."""
        return {}

    def empty_cache(self) -> str:
        """Give memory that it keeps and does not use back to the driver; say why it can't: a sentence."""
        return ""
