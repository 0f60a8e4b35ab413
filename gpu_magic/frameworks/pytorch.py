"""PyTorch: its accelerator, of any type, and its allocator."""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementWarning, warn_once
from gpu_magic.frameworks.base import Framework, Holding, MemoryPool, OutOfMemory, wanted_in
from gpu_magic.frameworks.private import private, private_of
from gpu_magic.frameworks.target import LogicalDevice
from gpu_magic.frameworks.torch_objects import device_switch, execution_devices, inner_tensors
from gpu_magic.text import listed, with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gpu_magic.frameworks.base import MemorySettings

__all__ = ["FRAMEWORK", "type_and_shape"]

# Raised by PyTorch before 2.9, and by accelerators that do not count memory.
_NOT_COUNTED = (AttributeError, RuntimeError)


class PyTorch(Framework):
    """`torch`, through its accelerator, of any type, and `torch.cuda`."""

    name = "PyTorch"
    follows_tasks = True
    module = "torch"
    needs = ("Tensor", "device", "nn", "optim")

    def __init__(self) -> None:
        self._limit: int | None = None  # of each GPU's memory, in bytes
        self._was_limited = False

    def has_gpu(self) -> bool:
        """Return PyTorch's own flag. It stays False after the cuInit of `torch.cuda.is_available()`."""
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
        """Count the accelerator's devices. PyTorch counts CUDA's through NVML if it can."""
        if device.kind == "cpu":
            return ""  # PyTorch's one CPU stands for every logical CPU of other frameworks
        torch: Any = sys.modules["torch"]
        if not hasattr(getattr(torch, "accelerator", None), "device_index"):
            return f"PyTorch {torch.__version__} is too old: 2.8 is needed"
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
        """Return the device. None for one without an index, which means the current device."""
        is_one = isinstance(obj, sys.modules["torch"].device) and (obj.type == "cpu" or obj.index is not None)
        return _logical_device(obj) if is_one else None

    def resolved(self, device: LogicalDevice) -> LogicalDevice:
        kind = _accelerator()
        is_other = device.kind == "gpu" and not device.type and kind is not None and kind != "cuda"
        return replace(device, type=str(kind)) if is_other else device

    def scope(self, device: LogicalDevice, is_used: Callable[[], bool]) -> AbstractContextManager[Any]:
        modes, name = self._modes, self.name_of(device)
        why = self.problem(device)
        if why and modes:
            return modes.RefusingMode(f"This cannot run on {device}: {why}.")  # type: ignore[no-any-return]
        mode = (modes.DeviceMode if modes else sys.modules["torch"].device)(name)
        return mode if why or name == "cpu" else _Current(mode)

    @cached_property
    def _modes(self) -> Any:
        """The module `torch_modes`, which imports PyTorch. None, after a warning, if its import fails."""
        try:
            return import_module("gpu_magic.frameworks.torch_modes")
        except ImportError as error:
            text = (
                f"PyTorch {sys.modules['torch'].__version__} has other insides ({error}): a block is "
                "with torch.device(...), in which a DataLoader can't shuffle. Update PyTorch."
            )
            warn_once("device_mode", text, PlacementWarning)
            return None

    def narrow(self, ordinals: Sequence[int]) -> tuple[str, AbstractContextManager[Any] | None]:
        """Set the current device. PyTorch cannot hide the other GPUs after CUDA has started."""
        device = LogicalDevice("gpu", ordinals[0])
        if why := self.problem(device):
            return why, None
        undo = ExitStack()
        undo.enter_context(device_switch(self.own_device(device)))
        return f"its current device is {self.name_of(device)}. Others can still be named", undo

    # Tensors

    def is_array(self, kind: type) -> bool:
        return issubclass(kind, sys.modules["torch"].Tensor)

    def holdings(self, array: Any) -> Sequence[Holding]:
        """Return the storages of a tensor and of its gradient. A sparse tensor or a wrapper has several."""
        grad = self.holdings(array.grad) if array.is_leaf and array.grad is not None else []
        device = array.device.type if array.device.type == "meta" else _logical_device(array.device)
        try:
            storage = array.untyped_storage()
            address = storage.data_ptr()
            # On the CPU, NumPy and JAX use the same key, because they can share the memory.
            where = "address" if array.device.type == "cpu" and address else device
            return [Holding(device, storage.nbytes(), (where, address or id(array))), *grad]
        except (RuntimeError, NotImplementedError, ValueError):  # sparse, a wrapper, or not yet initialized
            return [*(one for part in inner_tensors(array) for one in self.holdings(part)), *grad]

    def graph_of(self, array: Any) -> Any:
        return array.grad_fn

    def saved_by(self, node: Any) -> tuple[Sequence[Holding], Sequence[Any], Sequence[Any]]:
        """Return what a node keeps, without the hooks that unpack it.

        After `backward` those are only weights, and what a custom function has set as an attribute of `ctx`.
        """
        found: list[Holding] = []
        for name in [one for one in dir(type(node)) if one.startswith("_raw_saved")]:
            saved = getattr(node, name)
            for one in saved if isinstance(saved, tuple | list) else (saved,):
                tensor = private_of(one, "torch._C._autograd:SavedTensor.data")
                found += [] if tensor is None else self.holdings(tensor)
        weight = getattr(node, "variable", None)  # of `AccumulateGrad`
        found += self.holdings(weight) if isinstance(weight, sys.modules["torch"].Tensor) else []
        attributes = [*getattr(node, "__dict__", {}).values()]
        return found, attributes, [before for before, _ in node.next_functions if before is not None]

    def unmovable(self, kind: type) -> str:
        scripted = private("torch.jit:ScriptModule")
        if scripted is not None and issubclass(kind, scripted):
            return "A scripted module keeps its tensors outside Python. Use its own .to(device)"
        exported = sys.modules.get("torch.export.exported_program")
        if exported is not None and issubclass(kind, exported.ExportedProgram):
            return (
                "An exported program has its device in its graph: torch.export.passes.move_to_device_pass("
                'program, "cuda:0") returns one for another.'
            )
        return ""

    def bound(self, obj: Any, name: str = "", whole: Any = None) -> str:
        """Return why a module cannot move, as a sentence: hooks place it, or keep some of its weights."""
        kind = sys.modules["torch"].nn.Module
        sharded = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", None)
        if sharded is not None and isinstance(obj, sharded):
            shard = sys.modules["torch.distributed.tensor"].DTensor
            if not all(isinstance(one, shard) for one in kind.parameters(obj)):
                return f"fully_shard has gathered weights of this {type(obj).__name__}: call its reshard()."
        if not isinstance(obj, kind) or not execution_devices(obj)[0]:
            return ""
        hooks = [execution_devices(module) for module in kind.modules(obj)]
        names = {self._name_of_any(device) for devices, _ in hooks for device in devices}
        package = next(package for _, package in hooks if package)
        is_offloaded = any(one.device.type == "meta" for one in (*kind.parameters(obj), *kind.buffers(obj)))
        offloaded = ", with weights offloaded to the CPU or a disk" if is_offloaded else ""
        return (
            f"Hooks of {package} run this {type(obj).__name__} on {listed(sorted(names))}{offloaded}. "
            + _without_hooks(package, obj, name, whole)
        )

    def _name_of_any(self, device: Any) -> str:
        """Return the name of a device that a hook names as PyTorch does: `0`, "cuda:0", a torch.device."""
        return self.name_of(LogicalDevice("gpu", device)) if isinstance(device, int) else str(device)

    # Memory

    def free_bytes(self, device: LogicalDevice) -> int | None:
        """Return the driver's free bytes plus PyTorch's cached bytes. None before CUDA has started."""
        name, accelerator = self.name_of(device), sys.modules["torch"].accelerator
        if device.kind == "cpu" or (name.startswith("cuda") and not self.has_gpu()):
            return None
        try:
            free, _ = accelerator.get_memory_info(name)
            return int(free + accelerator.memory_reserved(name) - accelerator.memory_allocated(name))
        except _NOT_COUNTED as error:
            _say_not_counted(name.partition(":")[0], error)
            return None

    def pools(self) -> Mapping[LogicalDevice, MemoryPool]:
        found = {}
        try:
            for device in self._started():
                # Empty before the allocator is used.
                count = sys.modules["torch"].accelerator.memory_stats(device.index).get
                found[device] = MemoryPool(
                    count("allocated_bytes.all.current", 0),
                    count("reserved_bytes.all.current", 0),
                    count("allocated_bytes.all.peak", 0),
                    count("allocation.all.allocated", 0),
                )
        except _NOT_COUNTED as error:
            _say_not_counted(str(_accelerator()), error)
        return found

    def _started(self) -> list[LogicalDevice]:
        """Return the accelerator's devices. Empty before CUDA has started."""
        kind = _accelerator()
        if kind is None or (kind == "cuda" and not self.has_gpu()):
            return []
        count = sys.modules["torch"].accelerator.device_count()
        return [LogicalDevice("gpu", index, kind) for index in range(count)]

    def work(self) -> Mapping[LogicalDevice, int]:
        try:
            stats: Any = sys.modules["torch"].accelerator.memory_stats
            return {
                device: stats(device.index).get("allocation.all.allocated", 0) for device in self._started()
            }
        except _NOT_COUNTED:  # without a warning, because a block can do without
            return {}

    def current(self) -> LogicalDevice | None:
        found = self._started()
        return found[sys.modules["torch"].accelerator.current_device_index()] if found else None

    def synchronize(self) -> None:
        """Wait for the GPUs that hold PyTorch's memory. Another GPU would need a context of half a GiB."""
        torch: Any = sys.modules["torch"]
        for device, pool in self.pools().items():
            is_recorded = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
            if pool.reserved and not is_recorded:  # waiting would end the capture of a CUDA graph
                torch.accelerator.synchronize(device.index)

    def reset_peaks(self) -> bool:
        pools = self.pools()
        for device in pools:
            sys.modules["torch"].accelerator.reset_peak_memory_stats(device.index)
        return bool(pools)

    def out_of_memory(self, error: BaseException) -> OutOfMemory | None:
        """Return the accelerator's device that ran out of memory, and the requested size."""
        if not isinstance(error, sys.modules["torch"].OutOfMemoryError):
            return None
        named = re.search(r"GPU ([0-9]{1,4})\b", str(error))
        device = LogicalDevice("gpu", int(named[1]), _accelerator() or "cuda") if named else None
        return OutOfMemory(device, wanted_in(str(error)))

    def empty_cache(self) -> str:
        if self.pools():
            sys.modules["torch"].accelerator.empty_cache()
        return ""

    def limit_memory(self, memory: MemorySettings) -> None:
        """Limit the fraction of each GPU's memory that PyTorch's allocator may use, as soon as CUDA starts.

        `torch.cuda.set_per_process_memory_fraction` would start CUDA. `_lazy_call` defers a call until CUDA
        has started. PyTorch uses it for a seed, for example (PyTorch 2.13, torch/cuda/__init__.py).
        """
        if memory.limit is None and not self._was_limited:
            return
        self._limit, self._was_limited = memory.limit, True
        call = private("torch.cuda:_lazy_call")
        if call is not None:
            call(self._set_fractions)
        elif self.has_gpu():
            self._set_fractions()
        else:
            why = (
                f"PyTorch {sys.modules['torch'].__version__} does not take --memory-limit before CUDA starts"
            )
            warn_once("_lazy_call", f"{why}. Choose again after that.")

    def _set_fractions(self) -> None:
        """Set the fractions, and keep the current device.

        In older versions, PyTorch's allocator makes each device current, and starts it (before
        pytorch/pytorch#161035, c10/cuda/CUDACachingAllocator.cpp, `setMemoryFraction`). In newer ones, this
        starts no device, so a device that is current is not made current.
        """
        cuda: Any = sys.modules["torch"].cuda
        current = cuda.current_device()
        try:
            for index in range(cuda.device_count()):
                total = cuda.get_device_properties(index).total_memory
                fraction = 1.0 if self._limit is None else min(1.0, self._limit / total)
                cuda.set_per_process_memory_fraction(fraction, index)
        finally:
            if cuda.current_device() != current:
                cuda.set_device(current)


class _Current:
    """Makes a mode's device the current device (`"cuda"` without an index), and enters the mode."""

    def __init__(self, mode: Any) -> None:
        device = getattr(mode, "device", mode)  # without `torch_modes`, the mode is a torch.device
        self._switch, self._mode, self._follows_tasks = device_switch(device), mode, device is not mode

    def __enter__(self) -> None:
        if self._follows_tasks:
            index = sys.modules["torch"].accelerator.current_device_index()
            self._mode.current_before = sys.modules["torch"].device(self._mode.device.type, index)
        self._switch.__enter__()
        try:
            self._mode.__enter__()
        except BaseException:
            self._switch.__exit__(None, None, None)
            raise

    def __exit__(self, *exc_info: object) -> None:
        try:
            self._mode.__exit__(*exc_info)
        finally:
            self._switch.__exit__(*exc_info)


def _accelerator() -> str | None:
    """Return the type of the accelerator: "cuda" (also for ROCm), "xpu", "mps". None in a CPU build."""
    device = sys.modules["torch"].accelerator.current_accelerator()
    return None if device is None else str(device.type)


def _logical_device(device: Any) -> LogicalDevice:
    if device.type == "cpu":
        return LogicalDevice("cpu", 0)
    return LogicalDevice("gpu", device.index or 0, device.type)


def _say_not_counted(kind: str, error: Exception) -> None:
    text = f"PyTorch {sys.modules['torch'].__version__} does not count its memory on {kind} ({error})"
    warn_once(("PyTorch's memory", kind), f"{text}, so it is not shown. Update PyTorch.")


def _without_hooks(package: str, module: Any, name: str, whole: Any) -> str:
    """Return how to remove a package's hooks from a module, to which a variable leads."""
    if package != "accelerate":
        return "Create it again on the other device."
    if name and callable(getattr(type(whole), "remove_all_hooks", None)):  # a pipeline of diffusers
        return f"First type: {name}.remove_all_hooks()"
    kind = sys.modules["torch"].nn.Module
    if isinstance(whole, dict):
        parts = [(f"{name}[{key!r}]", one) for key, one in whole.items()]
    elif isinstance(whole, list | tuple):
        parts = [(f"{name}[{index}]", one) for index, one in enumerate(whole)]
    else:
        parts = [(f"{name}.{key}", one) for key, one in getattr(whole, "__dict__", {}).items()]
    models = [(name, whole), *parts] if name else []
    found = (path for path, one in models if isinstance(one, kind) and module in kind.modules(one))
    model = next(found, "model")
    return f"First type: import accelerate; accelerate.hooks.remove_hook_from_module({model}, recurse=True)"


def type_and_shape(tensor: Any) -> str:
    """Return a tensor's type and shape, as the start of a sentence."""
    return f"{with_article(type(tensor).__name__, 'A')} of shape {tuple(tensor.shape)}"


FRAMEWORK = PyTorch()
