"""What gpu_magic asks of a framework: the class that each plug-in implements, and what it answers with."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.errors import PlacementError
from gpu_magic.text import size_as_typed

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gpu_magic.frameworks.target import LogicalDevice

__all__ = ["Components", "Framework", "Holding", "MemoryPool", "MemorySettings", "OutOfMemory", "wanted_in"]

# "Tried to allocate 20.00 GiB." (PyTorch 2.13, c10/cuda/CUDACachingAllocator.cpp), "trying to allocate
# 8589934592 bytes" (XLA), "Out of memory allocating 1,024 bytes" (CuPy 13).
_WANTED = re.compile(r"allocat(?:e|ing) ([0-9][0-9,]{0,30}(?:\.[0-9]{1,9})?) ?(bytes|KiB|MiB|GiB|TiB)")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """How frameworks may take memory. Without growth and limit, nothing is set.

    Parameters
    ----------
    growth
        Take memory as it is needed, instead of most of it when the framework starts.
    limit
        The most of each GPU's memory, in bytes; None: no limit.
    fraction
        The limit as a fraction of the memory of the largest GPU, for frameworks that take no bytes.
    gpus
        How many GPUs are chosen.
    typed
        The limit as it was typed: `8GB`, or a number of bytes.

    """

    growth: bool = False
    limit: int | None = None
    fraction: float | None = None
    gpus: int = 0
    typed: str | int | None = field(default=None, compare=False)

    def __bool__(self) -> bool:
        return self.growth or self.limit is not None

    def __str__(self) -> str:
        said = ["TensorFlow and JAX allocate memory as they need it"] if self.growth else []
        if self.typed is not None:
            said.append(f"TensorFlow, JAX and PyTorch use at most {size_as_typed(self.typed)} of each GPU")
        return f"{'; '.join(said)}." if said else ""

    @property
    def options(self) -> str:
        """The options that ask for it, as they are typed: ` --growth --memory-limit 8GB`."""
        limit = "" if self.typed is None else f" --memory-limit {self.typed}"
        return f"{' --growth' * self.growth}{limit}"


class Holding(NamedTuple):
    """A piece of memory that a variable holds."""

    device: LogicalDevice | str  # the framework's own name where that is neither a CPU nor a GPU
    nbytes: int
    key: Hashable  # the same for two variables that share the memory (views, tied weights)


class Components(NamedTuple):
    """What an object is made of, and how to replace it."""

    children: Sequence[Any]
    # Called with the present children and as many new ones; returns the object with the new ones, and writes
    # only where the two differ. None: its children can't be replaced.
    put: Callable[[Sequence[Any], Sequence[Any]], Any] | None = None
    in_place: bool = True  # whether `put` changes the object and returns it, or returns a new one


class MemoryPool(NamedTuple):
    """A framework's memory on one GPU, in bytes."""

    used: int  # what its arrays take
    reserved: int  # what it has allocated from the driver, used or not
    peak: int | None = None  # the most of `used`, since it started or since `reset_peaks`; None: not counted
    allocations: int | None = None  # how many it has ever made; None: not counted


class OutOfMemory(NamedTuple):
    """What an error says that was raised as memory ran out."""

    device: LogicalDevice | None  # where; None where it does not say
    wanted: int | None  # the bytes that were asked for; None where it does not say


def wanted_in(text: str) -> int | None:
    """Return how many bytes an error says were asked for; None where it does not."""
    found = _WANTED.search(text)
    return round(float(found[1].replace(",", "")) * _UNITS[found[2]]) if found else None


class Framework(ABC):
    """A library that computes on GPUs.

    The abstract members are required. The others are capabilities that a framework may have; their bodies
    here are the answers of a framework without them. No method imports the framework; it is looked up in
    `sys.modules`. `problem`, `name_of` and `narrow` ask it for its devices, which can start it; so can
    `scope` where it is going to be used.

    Attributes
    ----------
    name
        As its users write it.
    module
        The module that they import.
    needs
        Attributes of that module. Another module of the same name lacks them.
    preallocates
        Whether it takes most of each GPU's memory when it starts: asking it for its devices can cost that.

    """

    needs: tuple[str, ...] = ()
    preallocates: bool = False

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def module(self) -> str: ...

    # Devices: required.

    @abstractmethod
    def statement_for(self, ordinal: int) -> str:
        """Return the line to type that makes `cuda:ordinal` the current device from there on."""

    @abstractmethod
    def problem(self, device: LogicalDevice) -> str:
        """Return why it can't compute on a device, as a clause; empty where it can."""

    @abstractmethod
    def name_of(self, device: LogicalDevice) -> str:
        """Return the framework's own name for a device."""

    @abstractmethod
    def scope(self, device: LogicalDevice, is_used: Callable[[], bool]) -> AbstractContextManager[Any]:
        """Return a context manager that makes a device the default of this thread.

        A framework that has not started is not started by it, and uses the device when it does start. Where
        only a started one can be configured, `is_used` returns whether the block is going to use it, so that
        it may be started. Where the device can't be used, using the framework within the block raises, or
        the end of the block does. Scopes end in the reverse of the order in which they began.
        """

    @abstractmethod
    def narrow(self, ordinals: Sequence[int]) -> tuple[str, AbstractContextManager[Any] | None]:
        """Make the framework use these GPUs from here on, in a process where CUDA has been initialized.

        Returns
        -------
        tuple
            A clause that says what it uses now, or why it could not be changed; and a context manager whose
            exit restores what was before, None where nothing was changed.

        """

    # Devices: optional.

    def has_gpu(self) -> bool:
        """Return whether it reports a GPU among the devices that it has started; False where it can't say."""
        return False

    def is_started(self) -> bool:
        """Return whether it has found its devices, and will not look for others any more."""
        return self.has_gpu()

    def without_cuda(self) -> str:
        """Return a sentence where it is built without CUDA: how to install one with it; else empty.

        It is asked before each choice takes effect, so it must not start the framework.
        """
        return ""

    def backend(self) -> str:
        """Return the module of the framework that it computes with; empty for itself."""
        return ""

    def resolved(self, device: LogicalDevice) -> LogicalDevice:
        """Return a device with the type that the framework computes on, where none was named (a bare `0`)."""
        return device

    def own_device(self, device: LogicalDevice) -> Any:
        """Return what the framework's functions take for a device where `scope` is entered."""
        return self.name_of(device)

    def device_of(self, obj: object) -> LogicalDevice | str | None:
        """Return the device that one of the framework's own objects stands for; None for another object."""
        return None

    def is_waiting(self, device: LogicalDevice) -> bool:
        """Return whether `scope` can set the device only in a block that uses the framework."""
        return False

    def raises_itself(self, device: LogicalDevice) -> bool:
        """Return whether the framework itself raises a clear error in `scope`, where it lacks the device."""
        return False

    # Arrays and the objects that have them.

    def is_array(self, kind: type) -> bool:
        """Return whether objects of this type are arrays of the framework."""
        return False

    def holdings(self, array: Any) -> Sequence[Holding]:
        """Return the memory that an array occupies, on each device."""
        return ()

    def components(self, obj: Any) -> Components | None:
        """Return what an object of the framework (a model, an optimizer) holds; None for anything else."""
        return None

    def unmovable(self, kind: type) -> str:
        """Return a sentence: why objects of this type can't be moved, and what to do; else empty."""
        return ""

    def origin(self, array: Any, device: LogicalDevice) -> str:
        """Return the device that an array is on, as users write it; empty where it need not be moved.

        The array can be NumPy's, which is to become the framework's. Asking starts the framework.

        Raises
        ------
        PlacementError
            It can't be moved: its shape, and why.

        """
        raise PlacementError(f"{self.name}'s arrays cannot be moved.")

    def copied(self, array: Any, device: LogicalDevice, memo: dict[Any, Any]) -> Any:
        """Return a copy of an array on a device, once it is there. A move has one memo for all its arrays."""
        raise PlacementError(f"{self.name}'s arrays cannot be moved.")

    # Memory.

    def memory_variables(self, memory: MemorySettings) -> Mapping[str, str]:
        """Return the environment variables that configure its use of memory. It reads them when it starts."""
        return {}

    def limit_memory(self, memory: MemorySettings) -> None:  # noqa: B027 - nothing is to be done
        """Configure the memory use of a framework that is imported and has not started; empty: as before."""

    def free_bytes(self, device: LogicalDevice) -> int | None:
        """Return how many bytes it can still allocate; None where that is not known before it starts."""
        return None

    def pools(self) -> Mapping[LogicalDevice, MemoryPool]:
        """Return its memory on each GPU, by its own count; empty where it has not started."""
        return {}

    def synchronize(self) -> None:  # noqa: B027 - most do nothing
        """Wait until the GPUs have done what they were asked for, where it can and has started."""

    def reset_peaks(self) -> bool:
        """Count the peaks of its pools from now on; return whether it can."""
        return False

    def out_of_memory(self, error: BaseException) -> OutOfMemory | None:
        """Return what an error says where it is the framework's own for a GPU without memory; else None."""
        return None

    def empty_cache(self) -> str:
        """Give cached memory back to the driver; return a sentence if it can't, saying why."""
        return ""
