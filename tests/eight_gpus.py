"""A framework that exists in the tests only, with arrays on eight GPUs of CUDA.

It is added to those that gpu_magic knows. Nothing here needs a GPU, so it can stand on a simulated machine in the
test's own process.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpu_magic import frameworks
from gpu_magic.frameworks.base import Framework, Holding, MemoryPool, OutOfMemory
from gpu_magic.frameworks.target import CPU, LogicalDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["FRAMEWORK", "Array", "NoMemoryError", "installed", "registered"]

COUNT = 8


@dataclass(eq=False)
class Array:
    """An array of some bytes on `cuda:ordinal`, or with None on the CPU."""

    ordinal: int | None
    nbytes: int = 1 << 20

    @property
    def device(self) -> LogicalDevice:
        return CPU if self.ordinal is None else LogicalDevice("gpu", self.ordinal, "cuda")


class NoMemoryError(RuntimeError):
    """No memory on a GPU, or with None on one that the error does not name."""

    def __init__(self, ordinal: int | None, wanted: int) -> None:
        super().__init__("out of memory")
        self.ordinal, self.wanted = ordinal, wanted


class EightGpus(Framework):
    """The framework. Its memory is what is set here."""

    name = "EightGpus"
    module = __name__

    reserved: int = 0  # bytes on each GPU
    free: int | None = None
    sticky: str = ""  # what each call into CUDA raises

    def statement_for(self, ordinal: int) -> str:
        return f"use({ordinal})"

    def problem(self, device: LogicalDevice) -> str:
        return "" if device.index < COUNT else "there are eight"

    def name_of(self, device: LogicalDevice) -> str:
        return str(device)

    def scope(
        self, device: LogicalDevice, is_used: Callable[[], bool]
    ) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def narrow(self, ordinals: Sequence[int]) -> tuple[str, contextlib.AbstractContextManager[Any] | None]:
        return "", None

    def is_array(self, kind: type) -> bool:
        return issubclass(kind, Array)

    def holdings(self, array: Array) -> Sequence[Holding]:
        return [Holding(array.device, array.nbytes, id(array))]

    def origin(self, array: Array, device: LogicalDevice) -> str:
        return "" if _ordinal(device) == array.ordinal else str(array.device)

    def copied(self, array: Array, device: LogicalDevice, memo: dict[Any, Any]) -> Array:
        _call_cuda()
        return Array(_ordinal(device), array.nbytes)

    def free_bytes(self, device: LogicalDevice) -> int | None:
        return self.free

    def empty_cache(self) -> str:
        _call_cuda()
        return ""

    def out_of_memory(self, error: BaseException) -> OutOfMemory | None:
        if not isinstance(error, NoMemoryError):
            return None
        device = None if error.ordinal is None else LogicalDevice("gpu", error.ordinal, "cuda")
        return OutOfMemory(device, error.wanted)

    def pools(self) -> Mapping[LogicalDevice, MemoryPool]:
        devices = [LogicalDevice("gpu", ordinal, "cuda") for ordinal in range(COUNT)] if self.reserved else []
        return {device: MemoryPool(self.reserved, self.reserved) for device in devices}


class Second(EightGpus):
    """Another one on the same GPUs."""

    name, module, reserved = "Second", "tests.machine", 2 << 20


FRAMEWORK, SECOND = EightGpus(), Second()


def _ordinal(device: LogicalDevice) -> int | None:
    return None if device.kind == "cpu" else device.index


def _call_cuda() -> None:
    if FRAMEWORK.sticky:
        raise RuntimeError(FRAMEWORK.sticky)


@contextlib.contextmanager
def installed(folder: Path, places: Mapping[str, str]) -> Iterator[None]:
    """Add frameworks to those that are known, for the length of a `with` block: by module, `package.module:NAME`."""
    homes = {}
    for module, place in places.items():
        home, _, name = place.partition(":")
        homes[module] = f"known_{module.replace('.', '_')}"
        (folder / f"{homes[module]}.py").write_text(f"from {home} import {name} as FRAMEWORK\n")
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    frameworks.KNOWN.update(homes)
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for module, home in homes.items():
            del frameworks.KNOWN[module]
            sys.modules.pop(home, None)


@contextlib.contextmanager
def registered(folder: Path, *, second: bool = False) -> Iterator[EightGpus]:
    """Add this framework, or both."""
    other = {SECOND.module: f"{__name__}:SECOND"} if second else {}
    with installed(folder, {__name__: f"{__name__}:FRAMEWORK", **other}):
        yield FRAMEWORK
    vars(FRAMEWORK).clear()
