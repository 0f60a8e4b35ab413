"""`Framework`, the base class of each known framework, and the types of its results."""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.errors import PlacementError, warn_once
from gpu_magic.text import size_as_typed

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gpu_magic.devices.model import Unknown
    from gpu_magic.frameworks.target import LogicalDevice

__all__ = [
    "Components",
    "Framework",
    "Holding",
    "MemoryPool",
    "MemorySettings",
    "OutOfMemory",
    "shortage_in",
    "wanted_in",
]

# "Tried to allocate 20.00 GiB." (PyTorch 2.13, c10/cuda/CUDACachingAllocator.cpp), "trying to allocate
# 8589934592 bytes" (XLA), "Out of memory allocating 1,024 bytes" (CuPy 13).
_WANTED = r"allocat(?:e|ing) ([0-9][0-9,]{0,30}(?:\.[0-9]{1,9})?) ?(bytes|KiB|MiB|GiB|TiB)"
# Messages of CUDA, ROCm and their libraries, in errors of any framework, some as names. The frameworks' own
# messages are among them, because an error of another process can come as text.
_NO_MEMORY = (
    r"(?i:(?:cuda|\bhip|\bxpu)[^\n]{0,40}out[ _]?of[ _]?memory)|cudaErrorMemoryAllocation"
    r"|(?:CUDA|HIP) error: resource allocation failed"  # cuSPARSE, in PyTorch's words
    r"|(?:CUBLAS|CUSOLVER|CUSPARSE|CUDNN|HIPBLAS|HIPSPARSE)_STATUS_ALLOC_FAILED|[CH](?:U|IP)FFT_ALLOC_FAILED"
    r"|CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED|CURAND_STATUS_ALLOCATION_FAILED"
    r"|RESOURCE_EXHAUSTED: Out of memory|Out of memory allocating [\d,]+ bytes"  # XLA, CuPy
    r"|Failed to allocate \d+ bytes on device 'cuda"  # Warp
    r"|less than desired GPU memory utilization"  # vLLM
)
# Messages that have other causes, but usually come from a full GPU: a library cannot allocate its workspace.
_PERHAPS_NO_MEMORY = (
    r"(?:CUBLAS|CUSOLVER|CUDNN|HIPBLAS)_STATUS_(?:NOT_INITIALIZED|INTERNAL_ERROR)|[CH](?:U|IP)FFT_INTERNAL_ERROR"
    r"|CURAND_STATUS_INITIALIZATION_FAILED|(?:CUDA|HIP) error: insufficient resources"
    r"|CUSPARSE_STATUS_INSUFFICIENT_RESOURCES|unable to find an engine to execute this computation"  # cuDNN's
    r"|ncclUnhandledCudaError|unhandled cuda error"
    r"|gpusolverDnCreate\(&handle\) failed|cuSolver internal error|DNN library initialization failed"  # JAX's
    r"|Dst tensor is not initialized"  # TensorFlow's
    r"|Failed to allocate memory for requested buffer"  # ONNX Runtime's
    r"|Engine core initialization failed"  # vLLM's
    r"|Failed to CUDA (?:host )?(?:calloc|malloc|alloc)"  # NCCL's
    r"|No available memory for the cache blocks"  # vLLM's
)
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """How frameworks may allocate memory. Without growth and limit, nothing is set.

    Parameters
    ----------
    growth
        Allocate memory as needed, instead of most of it when the framework starts.
    limit
        The most of each GPU's memory, in bytes. None: no limit.
    fraction
        The limit as a fraction of the memory of the largest GPU, for frameworks that accept no bytes.
    gpus
        The number of chosen GPUs.
    typed
        The limit as the user typed it: `8GB`, or a number of bytes.

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
        """The options for these settings, as users type them: ` --growth --memory-limit 8GB`."""
        limit = "" if self.typed is None else f" --memory-limit {self.typed}"
        return f"{' --growth' * self.growth}{limit}"


class Holding(NamedTuple):
    """A piece of memory that a variable holds."""

    device: LogicalDevice | str  # the framework's own name if it is neither a CPU nor a GPU
    nbytes: int
    key: Hashable  # the same for two variables that share the memory (views, tied weights)


class Components(NamedTuple):
    """The children of an object, and how to replace them."""

    children: Sequence[Any]
    # `put(children, new)` replaces the children that differ. If not `in_place`, it returns a new object.
    # None: the children cannot be replaced.
    put: Callable[[Sequence[Any], Sequence[Any]], Any] | None = None
    in_place: bool = True  # whether `put` changes the object itself


class MemoryPool(NamedTuple):
    """A framework's memory on one GPU, in bytes."""

    used: int  # by its arrays
    reserved: int  # allocated from the driver, used or not
    peak: int | None = None  # the most of `used` since the start or `reset_peaks`. None: not counted
    allocations: int | None = None  # the number so far. None: not counted


class OutOfMemory(NamedTuple):
    """The device and the size that an out-of-memory error names."""

    device: LogicalDevice | None  # None if the error names none
    wanted: int | None  # the requested bytes. None if the error names none
    is_certain: bool = True  # if not, the error means a lack of memory only if a GPU is full


def shortage_in(text: str) -> OutOfMemory | None:
    """Return what a message of CUDA or one of its libraries tells of a lack of memory. None: nothing."""
    is_certain = re.search(_NO_MEMORY, text) is not None
    if is_certain or re.search(_PERHAPS_NO_MEMORY, text):
        return OutOfMemory(None, wanted_in(text), is_certain)
    return None


def wanted_in(text: str) -> int | None:
    """Return the requested bytes that an error message names. None if it names none."""
    found = re.search(_WANTED, text)
    return round(float(found[1].replace(",", "")) * _UNITS[found[2]]) if found else None


class Framework(ABC):
    """A library that computes on GPUs.

    The abstract members are required. The other members are optional. If the framework lacks a feature, do
    not override the member for this feature. No method imports the framework. A method finds it in
    `sys.modules`. `problem`, `name_of` and `narrow` ask the framework for its devices. These calls can start
    the framework. `scope` can also start it, if the block uses it.

    Attributes
    ----------
    name
        The name of the framework, as users write it.
    module
        The module that users import.
    needs
        Attributes that the module must have. gpu_magic ignores a module of the same name without them.
    preallocates
        Whether the framework allocates most of each GPU's memory when it starts, for example when asked for
        its devices.
    follows_tasks
        Whether each asyncio task can have its own default device. Else all tasks of a thread have one.

    """

    name: str
    module: str
    needs: tuple[str, ...] = ()
    preallocates: bool = False
    follows_tasks: bool = False

    # Devices: required.

    @abstractmethod
    def statement_for(self, ordinal: int) -> str:
        """Return a line of code that makes `cuda:ordinal` the current device from there on."""

    @abstractmethod
    def problem(self, device: LogicalDevice) -> str:
        """Return why the framework cannot compute on a device, as a clause. Empty if it can."""

    @abstractmethod
    def name_of(self, device: LogicalDevice) -> str:
        """Return the framework's own name for a device."""

    @abstractmethod
    def scope(self, device: LogicalDevice, is_used: Callable[[], bool]) -> AbstractContextManager[Any]:
        """Return a context manager that makes a device the default of this thread.

        If the framework starts in the scope, it uses the device. The scope does not start it, with one
        exception. If the framework can be configured only after its start, call `is_used`, which returns
        whether the block will use the framework. If so, the scope may start the framework. It also returns
        True if the framework does not preallocate and CUDA has started. If the device cannot be used, the
        block raises an error when it uses the framework, or at its end. Scopes end in the reverse order of
        their start.
        """

    @abstractmethod
    def narrow(self, ordinals: Sequence[int]) -> tuple[str, AbstractContextManager[Any] | None]:
        """Make the framework use only these GPUs from here on, in a process where CUDA has started.

        Returns
        -------
        tuple
            The GPUs that the framework uses now, as a clause that follows its name, and a context manager
            that restores the earlier state when it exits. If nothing changed: why, as a clause with the
            framework's name, and None.

        """

    # Devices: optional.

    def has_gpu(self) -> bool:
        """Return whether the framework has started a device that is a GPU. False if that is unknown."""
        return False

    def is_started(self) -> bool | Unknown:
        """Return whether the framework has found its devices, and will not look for other devices.

        UNKNOWN, with a warning, if the framework does not tell. Then its devices cannot be asked for either,
        because that could start it.
        """
        return self.has_gpu()

    def _does_not_tell(self) -> Unknown:
        """Warn, once, that `is_started` is UNKNOWN."""
        version = getattr(sys.modules[self.module], "__version__", "")
        warn_once(
            ("is_started", self.module),
            f"{self.name} {version} does not tell whether it has started. If it has, --growth and "
            "--memory-limit come too late for it, and %%gpu_time does not wait for it. Update gpu_magic.",
        )
        return UNKNOWN

    def without_cuda(self) -> str:
        """If the framework has no CUDA, return how to install a build with CUDA, as a sentence. Else empty.

        gpu_magic calls this method before each choice, so the method must not start the framework.
        """
        return ""

    def backend(self) -> str:
        """Return the module of the backend, for a framework such as Keras. Empty without a backend."""
        return ""

    def resolved(self, device: LogicalDevice) -> LogicalDevice:
        """Return a device. If the device has no type (`0`), add the type that the framework computes on."""
        return device

    def own_device(self, device: LogicalDevice) -> Any:
        """Return the object that the framework's functions accept as this device, inside `scope`."""
        return self.name_of(device)

    def device_of(self, obj: object) -> LogicalDevice | str | None:
        """Return the device that one of the framework's objects names. None for another object."""
        return None

    def is_waiting(self, device: LogicalDevice) -> bool:
        """Return whether `scope` can set the device only in a block that uses the framework."""
        return False

    def raises_itself(self, device: LogicalDevice) -> bool:
        """Return whether the framework itself raises a clear error in `scope` if it lacks the device."""
        return False

    # Arrays and the objects that have them.

    def is_array(self, kind: type) -> bool:
        """Return whether objects of this type are arrays of the framework."""
        return False

    def holdings(self, array: Any) -> Sequence[Holding]:
        """Return the memory that an array occupies, on each device."""
        return ()

    def is_copy(self, array: Any) -> bool:
        """Return whether a NumPy array is a copy that the framework has made, whose `holdings` it knows."""
        return False

    def components(self, obj: Any) -> Components | None:
        """Return what an object of the framework (a model, an optimizer) holds. None: another object."""
        return None

    def unmovable(self, kind: type) -> str:
        """Return why objects of this type cannot move, and what to do, as a sentence. Empty if they can."""
        return ""

    def bound(self, obj: Any, name: str = "", whole: Any = None) -> str:
        """Return why an object cannot move, if others of its type can, and what to do. Or empty.

        `name` is the expression for `whole`, which is the object or leads to it.
        """
        return ""

    def origin(self, array: Any, device: LogicalDevice) -> str:
        """Return the device that an array is on, as users write it. Empty if the array need not move.

        The array can be a NumPy array that is to become an array of the framework. The call starts the
        framework.

        Raises
        ------
        PlacementError
            The array cannot move. The message has its shape, and the reason.

        """
        raise PlacementError(f"{self.name}'s arrays cannot be moved.")

    def copied(self, array: Any, device: LogicalDevice, memo: dict[Any, Any]) -> Any:
        """Copy an array to a device. Return the copy when it is complete.

        `memo` is a dictionary that all copies of one move share.
        """
        raise PlacementError(f"{self.name}'s arrays cannot be moved.")

    # Memory.

    def memory_variables(self, memory: MemorySettings) -> Mapping[str, str]:
        """Return the environment variables that set how the framework allocates memory when it starts."""
        return {}

    def limit_memory(self, memory: MemorySettings) -> None:  # noqa: B027 - nothing to do
        """Set the memory limits of an imported framework that has not started. Empty settings undo them."""

    def free_bytes(self, device: LogicalDevice) -> int | None:
        """Return how many bytes the framework can still allocate on a device.

        None if the number is unknown, for example before the framework starts.
        """
        return None

    def pools(self) -> Mapping[LogicalDevice, MemoryPool]:
        """Return the framework's memory on each GPU, by its own count. Empty if it has not started."""
        return {}

    def work(self) -> Mapping[LogicalDevice, int]:
        """Return a number for each GPU that grows when the framework allocates there. Empty: unknown."""
        return {
            device: pool.used if pool.allocations is None else pool.allocations
            for device, pool in self.pools().items()
        }

    def current(self) -> LogicalDevice | None:
        """Return the GPU that libraries use which name none, in this thread. None if that is unknown."""
        return None

    def synchronize(self) -> None:  # noqa: B027 - most do nothing
        """If the framework has started and can wait, wait until the GPUs have finished its work."""

    def reset_peaks(self) -> bool:
        """Reset the peaks of the framework's pools. Return whether the framework can."""
        return False

    def graph_of(self, array: Any) -> Any:
        """Return the node of a graph that has computed an array and can go back. None if there is none."""
        return None

    def saved_by(self, node: Any) -> tuple[Sequence[Holding], Sequence[Any], Sequence[Any]]:
        """Return the memory that a node of a graph keeps to go back, its objects, and the nodes before it."""
        return (), (), ()

    def out_of_memory(self, error: BaseException) -> OutOfMemory | None:
        """Return the size and the device of the framework's own out-of-memory error. None: another error."""
        return None

    def empty_cache(self) -> str:
        """Give cached memory back to the driver. If the framework cannot, return the reason as a sentence."""
        return ""
