"""PyTorch."""

from __future__ import annotations

import contextlib
import sys
import warnings
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks.base import Framework, Holding, MemoryPool
from gpu_magic.frameworks.nested_scopes import Nesting
from gpu_magic.frameworks.pytorch.components import components_of
from gpu_magic.frameworks.pytorch.tensors import tensors_in
from gpu_magic.frameworks.pytorch.transfer import TensorTransfer
from gpu_magic.selection.target import LogicalDevice
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from gpu_magic.frameworks.base import Components, Transfer
    from gpu_magic.selection.memory import Memory

__all__ = ["FRAMEWORK"]

_nesting = Nesting()


class PyTorch(Framework):
    """`torch`: its accelerator, whichever kind it is, and `torch.cuda`."""

    name = "PyTorch"
    module = "torch"
    needs = ("Tensor", "device", "nn", "optim")

    # What its CUDA side is told when it starts, in bytes; None: no limit.
    _limit: int | None = None
    _was_limited = False

    def has_gpu(self) -> bool:
        """Tell PyTorch's own flag, which misses the cuInit of `torch.cuda.is_available()`."""
        ask = getattr(sys.modules.get("torch.cuda"), "is_initialized", None)
        return ask is not None and bool(ask())

    def statement_for(self, ordinal: int) -> str:
        return f"torch.cuda.set_device({ordinal})"

    def problem(self, place: LogicalDevice) -> str:
        """Count its accelerator's devices; CUDA's are counted through NVML where PyTorch can."""
        if place.kind == "cpu":
            return ""  # it has one CPU, whichever logical one others are told
        torch: Any = sys.modules["torch"]
        if not hasattr(getattr(torch, "accelerator", None), "device_index"):
            return f"PyTorch {torch.__version__} is too old for it: 2.8 is needed"
        kind = _accelerator()
        asked = place.type or "cuda"
        if kind is None or (place.type and place.type != kind):
            return f"PyTorch {torch.__version__} {f'has no {asked}' if kind else 'is built without CUDA'}"
        count = torch.accelerator.device_count()
        if place.index < count:
            return ""
        return f"PyTorch sees {listed((f'{kind}:{index}' for index in range(count)), 'no GPU')}"

    def name_of(self, place: LogicalDevice) -> str:
        return "cpu" if place.kind == "cpu" else f"{place.type or _accelerator() or 'cuda'}:{place.index}"

    def resolved(self, place: LogicalDevice) -> LogicalDevice:
        kind = _accelerator()
        is_other = place.kind == "gpu" and not place.type and kind is not None and kind != "cuda"
        return replace(place, type=str(kind)) if is_other else place

    def scope(self, place: LogicalDevice, is_used: Callable[[], bool]) -> AbstractContextManager[Any]:
        del is_used  # a device mode starts nothing
        modes = self._modes
        if place.kind == "cpu":
            return modes.DeviceMode("cpu")  # type: ignore[no-any-return]
        if why := self.problem(place):
            return modes.RefusingMode(f"This is to run on {place}, and {why}.")  # type: ignore[no-any-return]
        device = sys.modules["torch"].device(self.name_of(place))
        return _Current(modes.DeviceMode(device), device)

    @cached_property
    def _modes(self) -> Any:
        """The file that needs PyTorch itself."""
        return import_module("gpu_magic.frameworks.pytorch.device_mode")

    def is_array(self, kind: type) -> bool:
        return issubclass(kind, sys.modules["torch"].Tensor)

    def holdings(self, thing: Any) -> Sequence[Holding]:
        """Return a tensor's storage, which its views share, and its gradient's; a sparse one has several."""
        grad = self.holdings(thing.grad) if thing.is_leaf and thing.grad is not None else []
        where = thing.device
        device = where.type if where.type == "meta" else _place(where)
        try:
            storage = thing.untyped_storage()
            address = storage.data_ptr()
            key = ("address", address) if where.type == "cpu" and address else (device, address or id(thing))
            return [Holding(device, storage.nbytes(), key), *grad]
        except (RuntimeError, NotImplementedError, ValueError):  # sparse, not yet initialised, and the like
            inner = components_of(thing.detach(), None)
            parts = [one for part in inner.children for one in self.holdings(part)] if inner else []
            return [*parts, *grad]

    def components(self, thing: Any, to: LogicalDevice | None = None) -> Components | None:
        return components_of(thing, to)

    def unmovable(self, kind: type) -> str:
        if issubclass(kind, sys.modules["torch"].jit.ScriptModule):
            return "A scripted module has its tensors out of Python's sight: use its own .to(device)."
        return ""

    def moves_itself(self, thing: Any) -> bool:
        return callable(getattr(type(thing), "to", None)) and bool(tensors_in(thing))

    def transfer(self, place: LogicalDevice) -> Transfer:
        return TensorTransfer(sys.modules["torch"].device(self.name_of(place)), _converted)

    def finalize(self, things: Iterable[Any]) -> None:
        """Lay each RNN's weights into one piece, as `Module.to` does: cuDNN wants them so.

        Where there is no room for that, PyTorch does it at every call instead, and warns.
        """
        kind = sys.modules["torch"].nn.RNNBase
        for thing in things:
            if isinstance(thing, kind):
                with contextlib.suppress(RuntimeError):
                    thing.flatten_parameters()

    def free_bytes(self, place: LogicalDevice) -> int | None:
        """Ask the driver, and its own allocator for what that keeps; not a CUDA that has not started."""
        torch: Any = sys.modules["torch"]
        name = self.name_of(place)
        if place.kind == "cpu" or (name.startswith("cuda") and not self.has_gpu()):
            return None
        try:
            free, _ = torch.accelerator.get_memory_info(name)
            kept = torch.accelerator.memory_reserved(name) - torch.accelerator.memory_allocated(name)
        except (AttributeError, RuntimeError):  # before PyTorch 2.9; an accelerator that does not count
            return None
        return int(free + kept)

    def pools(self) -> Mapping[LogicalDevice, MemoryPool]:
        torch: Any = sys.modules["torch"]
        kind = _accelerator()
        if kind is None or (kind == "cuda" and not self.has_gpu()):
            return {}
        found = {}
        with contextlib.suppress(AttributeError, RuntimeError):  # before PyTorch 2.9; one that does not count
            for index in range(torch.accelerator.device_count()):
                used = torch.accelerator.memory_allocated(index)
                found[LogicalDevice("gpu", index, kind)] = MemoryPool(
                    used, torch.accelerator.memory_reserved(index)
                )
        return found

    def empty_cache(self) -> str:
        if self.pools():
            sys.modules["torch"].accelerator.empty_cache()
        return ""

    def narrow(self, ordinals: Sequence[int]) -> tuple[str, AbstractContextManager[Any] | None]:
        """Set the current device; PyTorch can't hide the others once CUDA has started."""
        place = LogicalDevice("gpu", ordinals[0])
        if why := self.problem(place):
            return why, None
        name = self.name_of(place)
        current = _switch(sys.modules["torch"].device(name))
        current.__enter__()
        return f"its current device is {name}; the others can still be named", current

    def limit_memory(self, memory: Memory) -> None:
        """Set the fraction of each GPU's memory that its allocator may take, as soon as its CUDA side starts.

        `torch.cuda.set_per_process_memory_fraction` would start it; `_lazy_call` is how PyTorch itself keeps
        what was said before, a seed for example (PyTorch 2.13, torch/cuda/__init__.py).
        """
        if memory.limit is None and not self._was_limited:
            return
        self._limit, self._was_limited = memory.limit, True
        sys.modules["torch"].cuda._lazy_call(self._set_fractions)  # noqa: SLF001

    def _set_fractions(self) -> None:
        cuda: Any = sys.modules["torch"].cuda
        for index in range(cuda.device_count()):
            total = cuda.get_device_properties(index).total_memory
            fraction = 1.0 if self._limit is None else min(1.0, self._limit / total)
            cuda.set_per_process_memory_fraction(fraction, index)


class _Current:
    """Makes a device the default one, and the current one, which `"cuda"` without a number means."""

    def __init__(self, mode: AbstractContextManager[Any], device: Any) -> None:
        self._mode, self._switch = mode, _switch(device)

    @property
    def before(self) -> int:
        """The current device before it, which PyTorch's own switch keeps."""
        return int(self._switch.prev_idx)

    @before.setter
    def before(self, index: int) -> None:
        self._switch.prev_idx = index

    def __enter__(self) -> None:
        self._switch.__enter__()
        try:
            self._mode.__enter__()
        except BaseException:
            self._switch.__exit__(None, None, None)
            raise
        _nesting.enter(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._mode.__exit__(kind, error, trace)
        finally:
            if _nesting.leave(self):
                self._switch.__exit__(kind, error, trace)


def _accelerator() -> str | None:
    """Return what PyTorch calls its accelerator: "cuda" (ROCm, too), "xpu", "mps"; None for a CPU build."""
    device = sys.modules["torch"].accelerator.current_accelerator()
    return None if device is None else str(device.type)


def _switch(device: Any) -> Any:
    """Return what makes an accelerator's device the current one, and at its exit the one before."""
    torch: Any = sys.modules["torch"]
    switch = torch.cuda.device if device.type == "cuda" else torch.accelerator.device_index
    return switch(device.index)


def _place(device: Any) -> LogicalDevice:
    index = device.index or 0
    return LogicalDevice("cpu", 0) if device.type == "cpu" else LogicalDevice("gpu", index, device.type)


def _converted(thing: Any) -> Any:
    """Return the tensor over a NumPy array's memory; None for anything else."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not isinstance(thing, numpy.ndarray):
        return None
    torch: Any = sys.modules["torch"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the array is read-only: the tensor is copied at once
        with contextlib.suppress(TypeError, ValueError):
            return torch.from_numpy(thing)
        with contextlib.suppress(TypeError, ValueError):  # it goes backwards, or has another byte order
            return torch.from_numpy(numpy.ascontiguousarray(thing, thing.dtype.newbyteorder("=")))
    raise PlacementError(f"PyTorch has no tensors of NumPy's {thing.dtype}.")


FRAMEWORK = PyTorch()
