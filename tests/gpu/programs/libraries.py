"""Libraries that follow CUDA's current device: numba, cuDF and RAPIDS' memory manager in a block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.gpu.claim import Need, Seen, claim, measurement
from tests.gpu.programs.common import alone, both, needed, used
from tests.gpu.programs.cuda import Cuda

if TYPE_CHECKING:
    from collections.abc import Callable

WHERE = "on_gpu/scope.py"
TORCH: Need = "PyTorch for CUDA"


def _last() -> int:
    """Make two GPUs visible, or the one that may be used, and return the number of the last one."""
    if len(used()) > 1:
        return len(both()) - 1
    alone()
    return 0


def _in_and_after(number: int, ask: Callable[[], Any]) -> tuple[Any, Any]:
    import gpu_magic

    with gpu_magic.on_gpu(number):
        inside = ask()
    return inside, ask()


@claim(
    "In a block on a GPU, after `import torch`, numba's current device is that GPU: its arrays are there, and its kernels "
    "run there. After the block, it is `cuda:0` again.",
    WHERE,
    TORCH,
)
def numba_with_pytorch() -> Seen:
    number = _last()
    (cuda,) = needed("numba.cuda")
    import numpy as np
    import torch

    torch.zeros(1).cuda()

    def ask() -> list[Any]:
        @cuda.jit
        def double(array: Any) -> None:
            place = cuda.grid(1)
            if place < array.size:
                array[place] *= 2

        array = cuda.to_device(np.ones(64))
        double[1, 64](array)
        place = Cuda().device_of(array.__cuda_array_interface__["data"][0])
        return [cuda.get_current_device().id, place, float(array.copy_to_host().sum())]

    inside, after = _in_and_after(number, ask)
    is_so = inside == [number, number, 128.0] and after == [0, 0, 128.0]
    return Seen(is_so, f"in the block on {number}: device, array and sum {inside}; after it {after}")


@measurement(
    "numba's current device in a block on a GPU if no framework of gpu_magic's is imported.",
    WHERE,
    "a driver",
)
def numba_alone() -> Seen:
    number = _last()
    (cuda,) = needed("numba.cuda")
    inside, after = _in_and_after(number, lambda: cuda.get_current_device().id)
    return Seen(True, f"in the block on {number}: device {inside}; after it {after}")


@claim(
    "In a block on a GPU, cuDF's columns and RAPIDS' memory manager use that GPU.",
    WHERE,
    "CuPy",
)
def cudf() -> Seen:
    number = _last()
    frames, rmm = needed("cudf", "rmm")
    import cupy

    def ask() -> list[Any]:
        column, buffer = frames.Series([1, 2, 3]), rmm.DeviceBuffer(size=1024)
        places = [Cuda().device_of(pointer) for pointer in (column.values.data.ptr, buffer.ptr)]
        return [cupy.cuda.runtime.getDevice(), *places, int(column.sum())]

    inside, after = _in_and_after(number, ask)
    is_so = inside == [number, number, number, 6]
    return Seen(is_so, f"in the block on {number}: device, column, buffer and sum {inside}; after it {after}")
