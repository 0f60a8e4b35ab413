"""What gpu_magic knows how to ask of a framework, and to tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gpu_magic.selection.memory import Memory
    from gpu_magic.selection.target import Place

__all__ = ["Framework", "Holding"]


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

    device: Place | str
    nbytes: int
    key: Hashable


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
    takes_memory
        Whether it takes most of each GPU's memory when it starts: asking it for its devices can cost that.

    """

    name: str
    module: str
    needs: tuple[str, ...] = ()
    takes_memory: bool = False

    def has_gpu(self) -> bool:
        """Whether it says that a GPU is among the devices it has started; False where it does not say."""
        return False

    def backend(self) -> str:
        """Return the module of the framework that it computes with; empty for itself."""
        return ""

    def line_for(self, ordinal: int) -> str:
        """Return the line to type for working on `cuda:ordinal` from here on."""
        ...

    def problem(self, place: Place) -> str:
        """Say why it can't compute there: a clause; empty where it can."""
        ...

    def name_of(self, place: Place) -> str:
        """Return what it calls the place."""
        ...

    def speaks_up(self, place: Place) -> bool:
        """Whether within `scope` it raises by itself, in plain words, where it can't compute there."""
        del place
        return False

    def scope(self, place: Place, is_used: Callable[[], bool]) -> AbstractContextManager[Any]:
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

    def memory(self, thing: Any) -> Sequence[Holding] | None:
        """Return what one of its arrays occupies, on each device; None for anything else."""
        del thing
        return None

    def parts(self, thing: Any) -> Iterable[Any] | None:
        """Return what one of its objects (a model, an optimizer) is made of; None for anything else."""
        del thing
        return None
