"""CuPy."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from gpu_magic.frameworks.base import Framework, Holding
from gpu_magic.frameworks.copying import CopyMethod, CopyTransfer
from gpu_magic.selection.target import LogicalDevice
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from gpu_magic.frameworks.base import Transfer

__all__ = ["FRAMEWORK"]


class CuPy(Framework):
    """`cupy`, through `cupy.cuda`. It keeps no flag that can be read without starting CUDA."""

    name = "CuPy"
    module = "cupy"
    needs = ("cuda", "ndarray")

    def statement_for(self, ordinal: int) -> str:
        return f"cupy.cuda.Device({ordinal}).use()"

    def problem(self, place: LogicalDevice) -> str:
        """Count CUDA's devices, which starts CUDA. CuPy has no CPU: there it is left as it is."""
        if place.kind == "cpu":
            return ""
        if place.type not in ("", "cuda"):
            return f"CuPy has no {place.type}"
        cupy: Any = sys.modules["cupy"]
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            return f"CuPy can't use CUDA here ({error})"
        if place.index < count:
            return ""
        return f"CuPy sees {listed((f'cuda:{index}' for index in range(count)), 'no GPU')}"

    def name_of(self, place: LogicalDevice) -> str:
        return f"Device({place.index})" if place.kind == "gpu" else "its current device (it has no CPU)"

    def scope(self, place: LogicalDevice, is_used: Callable[[], bool]) -> AbstractContextManager[Any]:
        del is_used
        if place.kind == "cpu" or self.problem(place):  # without a GPU CuPy itself raises wherever it is used
            return contextlib.nullcontext()
        return sys.modules["cupy"].cuda.Device(place.index)  # type: ignore[no-any-return]

    def is_array(self, kind: type) -> bool:
        return issubclass(kind, sys.modules["cupy"].ndarray)

    def holdings(self, thing: Any) -> Sequence[Holding]:
        whole = thing.data.mem  # what its views share
        return [Holding(LogicalDevice("gpu", thing.device.id, "cuda"), whole.size, ("CuPy", whole.ptr))]

    def transfer(self, place: LogicalDevice) -> Transfer:
        """Copy each piece of memory once, with the views in it; on the CPU it is NumPy's."""
        cupy: Any = sys.modules["cupy"]
        copies: dict[int, Any] = {}  # by where the old memory begins

        def origin(array: Any) -> str:
            if not isinstance(array, cupy.ndarray):
                return "NumPy"
            return "" if (place.kind, place.index) == ("gpu", array.device.id) else f"cuda:{array.device.id}"

        def copy(array: Any) -> Any:
            if place.kind == "cpu":
                return cupy.asnumpy(array)
            with cupy.cuda.Device(place.index):
                if not isinstance(array, cupy.ndarray):
                    return cupy.asarray(array)
                whole = array.data.mem
                if whole.ptr not in copies:
                    pointer = cupy.cuda.MemoryPointer(whole, 0)
                    copies[whole.ptr] = cupy.asarray(cupy.ndarray((whole.size,), cupy.uint8, pointer)).data
                here = copies[whole.ptr] + (array.data.ptr - whole.ptr)
                return cupy.ndarray(array.shape, array.dtype, here, array.strides)

        sizes: set[int] = set()

        def nbytes(array: Any) -> int:
            if place.kind == "cpu" or not isinstance(array, cupy.ndarray):
                return int(array.nbytes)
            is_new = array.data.mem.ptr not in sizes
            sizes.add(array.data.mem.ptr)
            return int(array.data.mem.size) if is_new else 0

        return CopyTransfer(CopyMethod(origin, nbytes, copy))

    def free_bytes(self, place: LogicalDevice) -> int | None:
        """Ask the driver, and its own pool for what that keeps."""
        if place.kind == "cpu":
            return None
        cupy: Any = sys.modules["cupy"]
        with cupy.cuda.Device(place.index):
            free, _ = cupy.cuda.runtime.memGetInfo()
            return int(free + cupy.get_default_memory_pool().free_bytes())

    def empty_cache(self) -> str:
        """Empty its pools; what lies in them is not asked for before, as that starts CUDA."""
        cupy: Any = sys.modules["cupy"]
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()
        return ""

    def narrow(self, ordinals: Sequence[int]) -> tuple[str, AbstractContextManager[Any] | None]:
        """Set the current device; CuPy can't hide the others once CUDA has started."""
        place = LogicalDevice("gpu", ordinals[0], "cuda")
        if why := self.problem(place):
            return why, None
        cupy: Any = sys.modules["cupy"]
        undo = contextlib.ExitStack()
        undo.callback(cupy.cuda.Device(cupy.cuda.runtime.getDevice()).use)
        cupy.cuda.Device(place.index).use()
        return f"its current device is {place}; the others can still be named", undo


FRAMEWORK = CuPy()
