"""PyTorch's allocator: how much memory it has, may take, and what it says when there is none left."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import warn_once
from gpu_magic.frameworks.answers import MemoryPool, OutOfMemory
from gpu_magic.frameworks.out_of_memory import wanted_in
from gpu_magic.selection.target import LogicalDevice

if TYPE_CHECKING:
    from gpu_magic.selection.memory import MemorySettings

__all__ = ["Limit", "free_bytes", "out_of_memory", "pools", "reset_peaks"]

# What CUDA's libraries say, in errors that are not PyTorch's own for it.
_NO_MEMORY = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
# Before PyTorch 2.9, and where an accelerator does not count.
_NOT_COUNTED = (AttributeError, RuntimeError)


def free_bytes(name: str) -> int | None:
    """Return what the driver has left and what the allocator caches on a device; None for not known."""
    accelerator: Any = sys.modules["torch"].accelerator
    try:
        free, _ = accelerator.get_memory_info(name)
        cached = accelerator.memory_reserved(name) - accelerator.memory_allocated(name)
    except _NOT_COUNTED as error:
        _say_not_counted(name.partition(":")[0], error)
        return None
    return int(free + cached)


def pools(kind: str) -> dict[LogicalDevice, MemoryPool]:
    """Return the memory on each device of the accelerator, which is of a kind: "cuda"."""
    torch: Any = sys.modules["torch"]
    found = {}
    try:
        for index in range(torch.accelerator.device_count()):
            found[LogicalDevice("gpu", index, kind)] = _pool(index)
    except _NOT_COUNTED as error:
        _say_not_counted(kind, error)
    return found


def _say_not_counted(kind: str, error: Exception) -> None:
    text = f"PyTorch {sys.modules['torch'].__version__} does not count its memory on {kind} ({error})"
    warn_once(("PyTorch's memory", kind), f"{text}: it is left out of what is shown. Update PyTorch.")


def _pool(index: int) -> MemoryPool:
    """Return the memory on a device.

    `torch.accelerator.memory_stats` makes a sorted table of 100 entries of it; here three are taken.
    """
    torch: Any = sys.modules["torch"]
    if not torch._C._accelerator_isAllocatorInitialized():  # noqa: SLF001
        return MemoryPool(0, 0, 0, 0)
    stats = torch._C._accelerator_getDeviceStats(index)  # noqa: SLF001
    used = stats["allocated_bytes"]["all"]
    reserved = stats["reserved_bytes"]["all"]["current"]
    return MemoryPool(used["current"], reserved, used["peak"], stats["allocation"]["all"]["allocated"])


def reset_peaks() -> None:
    """Have the allocator count each device's peak from now on."""
    accelerator: Any = sys.modules["torch"].accelerator
    for index in range(accelerator.device_count()):
        accelerator.reset_peak_memory_stats(index)


def out_of_memory(error: BaseException, kind: str) -> OutOfMemory | None:
    """Return on which device of the accelerator memory was missing, and how much was asked for.

    None for any other error. The accelerator is of a kind: "cuda".
    """
    is_of_library = isinstance(error, RuntimeError) and any(word in str(error) for word in _NO_MEMORY)
    if not isinstance(error, sys.modules["torch"].OutOfMemoryError) and not is_of_library:
        return None
    named = re.search(r"GPU ([0-9]{1,4})\b", str(error))
    device = LogicalDevice("gpu", int(named[1]), kind) if named else None
    return OutOfMemory(device, wanted_in(str(error)))


class Limit:
    """How many bytes of each GPU `torch.cuda` may take."""

    def __init__(self) -> None:
        self.bytes: int | None = None
        self._was_set = False

    def set(self, memory: MemorySettings) -> None:
        """Set the fraction of each GPU's memory that PyTorch's allocator may take, when CUDA is initialized.

        `torch.cuda.set_per_process_memory_fraction` would initialize it. With `_lazy_call` PyTorch itself
        defers what is set before, a seed for example (PyTorch 2.13, torch/cuda/__init__.py).
        """
        if memory.limit is None and not self._was_set:
            return
        self.bytes, self._was_set = memory.limit, True
        sys.modules["torch"].cuda._lazy_call(self._set_fractions)  # noqa: SLF001

    def _set_fractions(self) -> None:
        cuda: Any = sys.modules["torch"].cuda
        for index in range(cuda.device_count()):
            total = cuda.get_device_properties(index).total_memory
            fraction = 1.0 if self.bytes is None else min(1.0, self.bytes / total)
            cuda.set_per_process_memory_fraction(fraction, index)
