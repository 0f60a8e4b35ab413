"""CuPy."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from gpu_magic.errors import PlacementWarning, warn_once
from gpu_magic.frameworks.base import Framework, Holding, OutOfMemory, wanted_in
from gpu_magic.frameworks.target import CPU, LogicalDevice
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

__all__ = ["FRAMEWORK"]


class CuPy(Framework):
    """`cupy`, through `cupy.cuda`. CuPy has no flag for whether CUDA has started."""

    name = "CuPy"
    module = "cupy"
    needs = ("cuda", "ndarray")

    def __init__(self) -> None:
        # The copies of blocks of memory on the CPU, by id, whose views are NumPy arrays.
        self._blocks: WeakValueDictionary[int, Any] = WeakValueDictionary()

    def statement_for(self, ordinal: int) -> str:
        return f"cupy.cuda.Device({ordinal}).use()"

    def problem(self, device: LogicalDevice) -> str:
        """Count CUDA's devices, which starts CUDA. CuPy has no CPU device, so the CPU is no problem."""
        if device.kind == "cpu":
            return ""
        if device.type not in ("", "cuda"):
            return f"CuPy has no {device.type}"
        cupy: Any = sys.modules["cupy"]
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            return f"CuPy cannot use CUDA ({error})"
        if device.index < count:
            return ""
        return f"CuPy sees {listed((f'cuda:{index}' for index in range(count)), 'no GPU')}"

    def name_of(self, device: LogicalDevice) -> str:
        return f"Device({device.index})" if device.kind == "gpu" else "its current device (it has no CPU)"

    def own_device(self, device: LogicalDevice) -> Any:
        return str(device) if device.kind == "cpu" else sys.modules["cupy"].cuda.Device(device.index)

    def device_of(self, obj: Any) -> LogicalDevice | str | None:
        is_one = isinstance(obj, sys.modules["cupy"].cuda.Device)
        return LogicalDevice("gpu", obj.id, "cuda") if is_one else None

    def is_waiting(self, device: LogicalDevice) -> bool:
        return device.kind == "gpu"

    def scope(self, device: LogicalDevice, is_used: Callable[[], bool]) -> AbstractContextManager[Any]:
        if device.kind == "gpu" and not is_used():
            return self._unset(device, is_used)
        if device.kind == "cpu" or self.problem(device):  # without a GPU, CuPy itself raises an error
            return contextlib.nullcontext()
        return sys.modules["cupy"].cuda.Device(device.index)  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def _unset(self, device: LogicalDevice, is_used: Callable[[], bool]) -> Iterator[None]:
        """Set nothing, because that would start CUDA. Warn if the block then makes arrays on another GPU."""
        yield
        cupy: Any = sys.modules["cupy"]
        if not is_used() or (current := cupy.cuda.runtime.getDevice()) == device.index:
            return
        if cupy.get_default_memory_pool().total_bytes():  # on the current device
            why = (
                "CUDA had not started, and the code does not name CuPy. CUDA has started now: run this again."
            )
            warn_once(
                "CuPy ran elsewhere", f"CuPy ran on cuda:{current}, not on {device}: {why}", PlacementWarning
            )

    def is_array(self, kind: type) -> bool:
        return issubclass(kind, sys.modules["cupy"].ndarray)

    def holdings(self, array: Any) -> Sequence[Holding]:
        if self.is_copy(array):
            return [Holding(CPU, array.base.nbytes, ("address", _address(array.base)))]
        memory = array.data.mem  # shared by its views
        return [Holding(LogicalDevice("gpu", array.device.id, "cuda"), memory.size, ("CuPy", memory.ptr))]

    def is_copy(self, array: Any) -> bool:
        return id(getattr(array, "base", None)) in self._blocks

    def origin(self, array: Any, device: LogicalDevice) -> str:
        """Return the array's device, or "NumPy". On the CPU, CuPy arrays become NumPy arrays."""
        is_ours = isinstance(array, sys.modules["cupy"].ndarray)
        origin = f"cuda:{array.device.id}" if is_ours else "NumPy"
        return "" if device.kind == "gpu" and origin == f"cuda:{device.index}" else origin

    def copied(self, array: Any, device: LogicalDevice, memo: dict[Any, Any]) -> Any:
        """Copy each block of memory once, for all its views, to the CPU and back."""
        cupy: Any = sys.modules["cupy"]
        if isinstance(array, cupy.ndarray):
            memory = array.data.mem
            key, offset = ("CuPy", memory.ptr), array.data.ptr - memory.ptr
            block = cupy.ndarray((memory.size,), cupy.uint8, cupy.cuda.MemoryPointer(memory, 0))
        elif (block := self._blocks.get(id(array.base))) is not None:
            key, offset = ("NumPy", id(block)), _address(array) - _address(block)
        else:
            with cupy.cuda.Device(device.index):
                return cupy.asarray(array)
        if device.kind == "cpu":
            if key not in memo:
                memo[key] = copy = cupy.asnumpy(block)
                self._blocks[id(copy)] = copy
            return sys.modules["numpy"].ndarray(array.shape, array.dtype, memo[key], offset, array.strides)
        with cupy.cuda.Device(device.index):
            if key not in memo:
                memo[key] = cupy.asarray(block).data
            return cupy.ndarray(array.shape, array.dtype, memo[key] + offset, array.strides)

    def free_bytes(self, device: LogicalDevice) -> int | None:
        """Return the driver's free bytes plus the bytes in the cache of CuPy's pool."""
        if device.kind == "cpu":
            return None
        cupy: Any = sys.modules["cupy"]
        with cupy.cuda.Device(device.index):
            free, _ = cupy.cuda.runtime.memGetInfo()
            return int(free + cupy.get_default_memory_pool().free_bytes())

    def out_of_memory(self, error: BaseException) -> OutOfMemory | None:
        """Return the requested size. The error does not name the device, which is the current one."""
        kind = getattr(sys.modules.get("cupy.cuda.memory"), "OutOfMemoryError", None)
        if kind is None or not isinstance(error, kind):
            return None
        return OutOfMemory(None, wanted_in(str(error)))

    def empty_cache(self) -> str:
        """Empty CuPy's pools. Asking for their sizes first would start CUDA."""
        cupy: Any = sys.modules["cupy"]
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()
        return ""

    def narrow(self, ordinals: Sequence[int]) -> tuple[str, AbstractContextManager[Any] | None]:
        """Set the current device. CuPy cannot hide the other GPUs after CUDA has started."""
        device = LogicalDevice("gpu", ordinals[0], "cuda")
        if why := self.problem(device):
            return why, None
        cupy: Any = sys.modules["cupy"]
        undo = contextlib.ExitStack()
        undo.callback(cupy.cuda.Device(cupy.cuda.runtime.getDevice()).use)
        cupy.cuda.Device(device.index).use()
        return f"its current device is {device}. Others can still be named", undo


def _address(array: Any) -> int:
    """Return the address of a NumPy array's first element."""
    return int(array.__array_interface__["data"][0])


FRAMEWORK = CuPy()
