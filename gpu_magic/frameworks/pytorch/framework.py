"""PyTorch's plug-in."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementWarning, warn_once
from gpu_magic.frameworks.answers import Holding
from gpu_magic.frameworks.base import Framework
from gpu_magic.frameworks.pytorch import allocator
from gpu_magic.frameworks.pytorch.allocator import Limit
from gpu_magic.frameworks.pytorch.current_device import CurrentDevice, device_switch
from gpu_magic.frameworks.pytorch.tensors import sparse_parts
from gpu_magic.selection.target import LogicalDevice
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gpu_magic.frameworks.answers import MemoryPool, OutOfMemory
    from gpu_magic.selection.memory import MemorySettings

__all__ = ["FRAMEWORK"]


class PyTorch(Framework):
    """`torch`: its accelerator, whichever kind it is, and `torch.cuda`."""

    name = "PyTorch"
    module = "torch"
    needs = ("Tensor", "device", "nn", "optim")

    def __init__(self) -> None:
        self._limit = Limit()

    def has_gpu(self) -> bool:
        """Return PyTorch's own flag, which misses the cuInit of `torch.cuda.is_available()`."""
        ask = getattr(sys.modules.get("torch.cuda"), "is_initialized", None)
        return ask is not None and bool(ask())

    def without_cuda(self) -> str:
        torch: Any = sys.modules["torch"]
        if getattr(torch, "accelerator", None) is None or _accelerator() is not None:
            return ""
        return (
            f"PyTorch {torch.__version__} is built without CUDA and uses no GPU: "
            "pip install --force-reinstall torch, then restart Python."
        )

    def statement_for(self, ordinal: int) -> str:
        return f"torch.cuda.set_device({ordinal})"

    def problem(self, device: LogicalDevice) -> str:
        """Count its accelerator's devices. PyTorch counts CUDA's through NVML where it can."""
        if device.kind == "cpu":
            return ""  # PyTorch has one CPU, for every logical CPU of other frameworks
        torch: Any = sys.modules["torch"]
        if not hasattr(getattr(torch, "accelerator", None), "device_index"):
            return f"PyTorch {torch.__version__} is too old for it: 2.8 is needed"
        kind = _accelerator()
        if kind is None and device.type in ("", "cuda"):
            return f"PyTorch {torch.__version__} is built without CUDA"
        if device.type not in ("", kind):
            return f"PyTorch {torch.__version__} has no {device.type}"
        count = torch.accelerator.device_count()
        if device.index < count:
            return ""
        return f"PyTorch sees {listed((f'{kind}:{index}' for index in range(count)), 'no GPU')}"

    def name_of(self, device: LogicalDevice) -> str:
        return "cpu" if device.kind == "cpu" else f"{device.type or _accelerator() or 'cuda'}:{device.index}"

    def own_device(self, device: LogicalDevice) -> Any:
        return sys.modules["torch"].device(self.name_of(device))

    def device_of(self, obj: object) -> LogicalDevice | str | None:
        """Return a device that has a number; one without is whichever is the current one."""
        is_one = isinstance(obj, sys.modules["torch"].device) and (obj.type == "cpu" or obj.index is not None)
        return logical_device(obj) if is_one else None

    def resolved(self, device: LogicalDevice) -> LogicalDevice:
        kind = _accelerator()
        is_other = device.kind == "gpu" and not device.type and kind is not None and kind != "cuda"
        return replace(device, type=str(kind)) if is_other else device

    def scope(self, device: LogicalDevice, is_used: Callable[[], bool]) -> AbstractContextManager[Any]:
        del is_used  # a device mode starts nothing
        torch: Any = sys.modules["torch"]
        modes = self._modes
        if device.kind == "cpu":
            return modes.DeviceMode("cpu") if modes else torch.device("cpu")  # type: ignore[no-any-return]
        torch_device = torch.device(self.name_of(device))
        if why := self.problem(device):
            if modes is None:  # what is made there raises, in PyTorch's words
                return torch_device  # type: ignore[no-any-return]
            return modes.RefusingMode(f"This is to run on {device}, and {why}.")  # type: ignore[no-any-return]
        return CurrentDevice(torch_device, modes.DeviceMode(torch_device) if modes else torch_device)

    @cached_property
    def _modes(self) -> Any:
        """The module that imports PyTorch, and so is imported late; None, after a warning, if it can't be."""
        try:
            return import_module("gpu_magic.frameworks.pytorch.device_mode")
        except (AttributeError, ImportError) as error:
            text = (
                f"PyTorch {sys.modules['torch'].__version__} has other insides ({error}): a block is "
                "with torch.device(...), in which a DataLoader can't shuffle. Update PyTorch."
            )
            warn_once("device_mode", text, PlacementWarning)
            return None

    def is_array(self, kind: type) -> bool:
        return issubclass(kind, sys.modules["torch"].Tensor)

    def holdings(self, array: Any) -> Sequence[Holding]:
        """Return a tensor's storage, which its views share, and its gradient's; of a sparse one several."""
        grad = self.holdings(array.grad) if array.is_leaf and array.grad is not None else []
        device = array.device.type if array.device.type == "meta" else logical_device(array.device)
        try:
            storage = array.untyped_storage()
            address = storage.data_ptr()
            # The key on the CPU is that of NumPy and JAX, which can share the memory.
            where = "address" if array.device.type == "cpu" and address else device
            return [Holding(device, storage.nbytes(), (where, address or id(array))), *grad]
        except (RuntimeError, NotImplementedError, ValueError):  # sparse, not yet initialized, and the like
            inner = sparse_parts(array.detach())
            return [*(holding for part in inner for holding in self.holdings(part)), *grad]

    def unmovable(self, kind: type) -> str:
        if issubclass(kind, sys.modules["torch"].jit.ScriptModule):
            return "A scripted module keeps its tensors outside Python: use its own .to(device)."
        exported = sys.modules.get("torch.export.exported_program")
        if exported is not None and issubclass(kind, exported.ExportedProgram):
            return (
                "An exported program has its device in its graph: torch.export.passes.move_to_device_pass("
                'program, "cuda:0") returns one for another.'
            )
        return ""

    def free_bytes(self, device: LogicalDevice) -> int | None:
        """Add what the driver has left and what PyTorch's allocator caches; None before CUDA has started."""
        name = self.name_of(device)
        if device.kind == "cpu" or (name.startswith("cuda") and not self.has_gpu()):
            return None
        return allocator.free_bytes(name)

    def pools(self) -> Mapping[LogicalDevice, MemoryPool]:
        kind = _accelerator()
        return {} if kind is None or (kind == "cuda" and not self.has_gpu()) else allocator.pools(kind)

    def reset_peaks(self) -> bool:
        has_any = bool(self.pools())
        if has_any:
            allocator.reset_peaks()
        return has_any

    def out_of_memory(self, error: BaseException) -> OutOfMemory | None:
        return allocator.out_of_memory(error, _accelerator() or "cuda")

    def empty_cache(self) -> str:
        if self.pools():
            sys.modules["torch"].accelerator.empty_cache()
        return ""

    def narrow(self, ordinals: Sequence[int]) -> tuple[str, AbstractContextManager[Any] | None]:
        """Set the current device; PyTorch can't hide the others once CUDA has started."""
        device = LogicalDevice("gpu", ordinals[0])
        if why := self.problem(device):
            return why, None
        name = self.name_of(device)
        current = device_switch(sys.modules["torch"].device(name))
        current.__enter__()
        return f"its current device is {name}; the others can still be named", current

    def limit_memory(self, memory: MemorySettings) -> None:
        self._limit.set(memory)


def _accelerator() -> str | None:
    """Return the type of PyTorch's accelerator: "cuda" (also for ROCm), "xpu", "mps"; None in a CPU build."""
    device = sys.modules["torch"].accelerator.current_accelerator()
    return None if device is None else str(device.type)


def logical_device(device: Any) -> LogicalDevice:
    """Return what gpu_magic calls a `torch.device`."""
    if device.type == "cpu":
        return LogicalDevice("cpu", 0)
    return LogicalDevice("gpu", device.index or 0, device.type)


FRAMEWORK = PyTorch()
