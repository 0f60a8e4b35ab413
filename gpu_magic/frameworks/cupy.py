"""CuPy."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from gpu_magic.frameworks.base import Framework, Holding
from gpu_magic.selection.target import Place
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

__all__ = ["FRAMEWORK"]


class CuPy(Framework):
    """`cupy`, through `cupy.cuda`. It keeps no flag that can be read without starting CUDA."""

    name = "CuPy"
    module = "cupy"
    needs = ("cuda", "ndarray")

    def line_for(self, ordinal: int) -> str:
        return f"cupy.cuda.Device({ordinal}).use()"

    def problem(self, place: Place) -> str:
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

    def name_of(self, place: Place) -> str:
        return f"Device({place.index})" if place.kind == "gpu" else "its current device (it has no CPU)"

    def scope(self, place: Place, is_used: Callable[[], bool]) -> AbstractContextManager[Any]:
        del is_used
        if place.kind == "cpu" or self.problem(place):  # without a GPU CuPy itself raises wherever it is used
            return contextlib.nullcontext()
        return sys.modules["cupy"].cuda.Device(place.index)  # type: ignore[no-any-return]

    def memory(self, thing: Any) -> Sequence[Holding] | None:
        if not issubclass(type(thing), sys.modules["cupy"].ndarray):
            return None
        whole = thing.data.mem  # what its views share
        return [Holding(Place("gpu", thing.device.id, "cuda"), whole.size, ("CuPy", whole.ptr))]

    def narrow(self, ordinals: Sequence[int]) -> tuple[str, AbstractContextManager[Any] | None]:
        """Set the current device; CuPy can't hide the others once CUDA has started."""
        place = Place("gpu", ordinals[0], "cuda")
        if why := self.problem(place):
            return why, None
        cupy: Any = sys.modules["cupy"]
        undo = contextlib.ExitStack()
        undo.callback(cupy.cuda.Device(cupy.cuda.runtime.getDevice()).use)
        cupy.cuda.Device(place.index).use()
        return f"its current device is {place}; the others can still be named", undo


FRAMEWORK = CuPy()
