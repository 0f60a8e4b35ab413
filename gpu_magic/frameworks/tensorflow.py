"""TensorFlow, through its eager context (TensorFlow 2.21, python/eager/context.py).

Creating the context starts nothing. Asking the context for devices starts CUDA.
"""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError, warn_once
from gpu_magic.frameworks.base import Components, Framework, Holding, MemoryPool, OutOfMemory, wanted_in
from gpu_magic.frameworks.private import has_private, private, private_of, required
from gpu_magic.frameworks.target import CPU, LogicalDevice
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gpu_magic.devices.model import Unknown
    from gpu_magic.frameworks.base import MemorySettings

__all__ = ["FRAMEWORK", "mirrored"]

_EAGER = "tensorflow.python.eager.context"
_JOB = "/job:localhost/replica:0/task:0"
# The prefix for a missing device. TensorFlow uses the CPU in place of a missing device of this process, but
# raises an error for a device of an unknown process.
_ABSENT = "/job:absent"
_KEEPS = "TensorFlow has started and keeps its devices"
_DEVICE_NAME, _DEVICE_SPEC = f"{_EAGER}:Context.device_name", f"{_EAGER}:Context.device_spec"
# Kept for later cells, because a model works only with the strategy that it was created with.
_strategies: dict[tuple[str, ...], Any] = {}


class TensorFlow(Framework):
    """`tensorflow`, through its eager context."""

    name = "TensorFlow"
    module = "tensorflow"
    needs = ("Module", "config", "device", "distribute")
    preallocates = True

    def __init__(self) -> None:
        self._limits = ExitStack()  # restores what `limit_memory` has changed

    def has_gpu(self) -> bool:
        """Return whether TensorFlow has started and lists a GPU."""
        if self.is_started() is not True:
            return False
        config: Any = sys.modules["tensorflow"].config
        return bool(config.list_logical_devices("GPU"))

    def is_started(self) -> bool | Unknown:
        eager, handle = sys.modules.get(_EAGER), f"{_EAGER}:Context._context_handle"
        if eager is None:
            return False
        if has_private(eager, f"{_EAGER}:_context"):
            context = private(f"{_EAGER}:_context")
            if context is None or has_private(context, handle):
                return private_of(context, handle) is not None
        return self._does_not_tell()

    def without_cuda(self) -> str:
        tf: Any = sys.modules["tensorflow"]
        if tf.test.is_built_with_gpu_support():
            return ""
        return (
            f"TensorFlow {tf.__version__} is built without CUDA and uses no GPU: "
            'pip uninstall tensorflow-cpu, then pip install "tensorflow[and-cuda]", then restart Python.'
        )

    def statement_for(self, ordinal: int) -> str:
        return f'with tf.device("/GPU:{ordinal}"): ...'

    def problem(self, device: LogicalDevice) -> str:
        """Return what TensorFlow lacks. TensorFlow itself silently uses the CPU if a device is missing."""
        tf: Any = sys.modules["tensorflow"]
        if device.type not in ("", "cuda"):
            return f"TensorFlow has no {device.type}"
        found = _cuda_ordinals(device.kind.upper())
        if device.index in found:
            return ""
        if device.kind == "cpu":
            return f"TensorFlow has {listed(f'cpu:{index}' for index in found)}"
        if not tf.test.is_built_with_gpu_support():
            return f"TensorFlow {tf.__version__} is built without CUDA"
        names = [f"cuda:{ordinal} (as /GPU:{index})" for index, ordinal in enumerate(found)]
        return f"TensorFlow sees {listed(names, 'no GPU')}"

    def name_of(self, device: LogicalDevice) -> str:
        """Return `/GPU:i`. TensorFlow numbers only its visible devices, which can be fewer than CUDA's."""
        if device.kind == "cpu":
            return f"/CPU:{device.index}"
        found = _cuda_ordinals("GPU")
        return f"/GPU:{found.index(device.index) if device.index in found else device.index}"

    def device_of(self, obj: object) -> LogicalDevice | str | None:
        """Convert a PhysicalDevice, which has CUDA's number, or a LogicalDevice of TensorFlow."""
        config: Any = sys.modules["tensorflow"].config
        if isinstance(obj, config.LogicalDevice):
            return _logical_device(obj.name)
        if not isinstance(obj, config.PhysicalDevice):
            return None
        if obj.device_type == "GPU":
            return LogicalDevice("gpu", _index_of(obj), "cuda")
        return LogicalDevice("cpu", _index_of(obj)) if obj.device_type == "CPU" else obj.name

    @contextmanager
    def scope(self, device: LogicalDevice, is_used: Callable[[], bool]) -> Iterator[None]:
        """Set the device. At the end, restore the previous one, even if contexts of the block are still open.

        This does not start TensorFlow. `tf.device` would start it. TensorFlow then allocates nearly all the
        memory of each visible GPU, even if only TensorBoard has imported it and the user never uses it. So a
        missing device is known only at the end of the block, if TensorFlow has started by then.
        """
        tf, was_started = sys.modules["tensorflow"], self.is_started() is True
        index = f"/device:{device.kind.upper()}:{device.index}"
        if was_started:
            is_absent = device != CPU and self.problem(device)
            started_scope = tf.device(f"{_ABSENT}{index}" if is_absent else self.name_of(device))
        try:
            context = required(f"{_EAGER}:context")()
            set_device = required(f"{_EAGER}:Context._set_device")
            device_name, device_spec = required(_DEVICE_NAME), required(_DEVICE_SPEC)
            before = device_name.fget(context), device_spec.fget(context)
        except ImportError:
            if not was_started:  # the public way would start it
                raise
            with started_scope:
                yield
            return
        if was_started:
            started_scope.__enter__()
        else:  # the name that the device will have, because listing the devices would start CUDA
            if private_of(context, f"{_EAGER}:Context._physical_devices") is not None:
                index = self.name_of(device).replace("/", "/device:")
            set_device(context, f"{_JOB}{index}", tf.DeviceSpec.from_string(f"{_JOB}{index}"))
        try:
            yield
        finally:
            set_device(context, *before)
        if not was_started and device != CPU and self.is_started() is True and (why := self.problem(device)):
            raise PlacementError(f"TensorFlow ran on the CPU, not on {device}: {why}.")

    def narrow(self, ordinals: Sequence[int]) -> tuple[str, AbstractContextManager[Any] | None]:
        """Set the visible devices. TensorFlow refuses that after it has started."""
        tf: Any = sys.modules["tensorflow"]
        if self.is_started() is True:
            return _KEEPS, None
        physical = {_index_of(gpu): gpu for gpu in tf.config.list_physical_devices("GPU")}
        if not physical and not tf.test.is_built_with_gpu_support():
            return f"TensorFlow {tf.__version__} is built without CUDA", None
        missing = [f"cuda:{ordinal}" for ordinal in ordinals if ordinal not in physical]
        if missing:
            return f"TensorFlow does not list {listed(missing)}", None
        undo = ExitStack()
        undo.callback(self._set_visible, tf.config.get_visible_devices("GPU"))
        try:
            self._set_visible([physical[ordinal] for ordinal in ordinals])
        except RuntimeError:  # it has started, and did not tell
            return _KEEPS, None
        names = [f"cuda:{ordinal} as /GPU:{index}" for index, ordinal in enumerate(_cuda_ordinals("GPU"))]
        return f"it sees {listed(names, 'no GPU')}", undo

    def _set_visible(self, gpus: Sequence[Any]) -> None:
        if self.is_started() is not True:  # afterwards, TensorFlow refuses
            sys.modules["tensorflow"].config.set_visible_devices(gpus, "GPU")

    # Tensors

    def is_array(self, kind: type) -> bool:
        tf: Any = sys.modules["tensorflow"]
        is_tensor = issubclass(kind, tf.Tensor | tf.Variable)
        return is_tensor and not issubclass(kind, tf.distribute.DistributedValues)

    def holdings(self, array: Any) -> Sequence[Holding]:
        try:
            nbytes = int(array.shape.num_elements() or 0) * int(array.dtype.size)
            return [Holding(_logical_device(array.device), nbytes, ("TensorFlow", id(array)))]
        except (AttributeError, ValueError):  # symbolic tensors of a graph hold nothing
            return []

    def components(self, obj: Any) -> Components | None:
        tf: Any = sys.modules["tensorflow"]
        kind = type(obj)
        if issubclass(kind, tf.distribute.DistributedValues):  # a mirrored variable
            return Components(obj.values)
        if issubclass(kind, tf.Module):
            return Components(obj.variables)
        if issubclass(kind, tf.RaggedTensor | tf.SparseTensor | tf.IndexedSlices):
            inner = tf.nest.flatten(obj, expand_composites=True)
            pack = partial(tf.nest.pack_sequence_as, obj, expand_composites=True)
            return Components(inner, lambda _, new: pack(new), in_place=False)
        return None

    def unmovable(self, kind: type) -> str:
        tf: Any = sys.modules["tensorflow"]
        for base, name in ((tf.Variable, "tf.Variable"), (tf.Module, "tf.Module")):
            if issubclass(kind, base):
                way = "create it again in a cell with %%on_gpu, and assign to it"
                return f"TensorFlow cannot move a {name}: {way}."
        return ""

    def origin(self, array: Any, device: LogicalDevice) -> str:
        """Return the device of a tensor. Empty for strings, which stay on the CPU."""
        if not hasattr(array, "numpy"):
            raise PlacementError("A symbolic TensorFlow tensor has no data to move.")
        origin = _logical_device(array.device)
        target = LogicalDevice("gpu", device.index, "cuda") if device.kind == "gpu" else device
        return "" if array.dtype == sys.modules["tensorflow"].string or origin == target else str(origin)

    def copied(self, array: Any, device: LogicalDevice, memo: dict[Any, Any]) -> Any:
        tf: Any = sys.modules["tensorflow"]
        with tf.device(self.name_of(device)):
            return tf.identity(array)

    # Memory

    def pools(self) -> Mapping[LogicalDevice, MemoryPool]:
        found, tf = {}, sys.modules["tensorflow"]
        for index, ordinal in enumerate(_cuda_ordinals("GPU") if self.has_gpu() else ()):
            memory = tf.config.experimental.get_memory_info(f"GPU:{index}")
            # TensorFlow does not report how much it has reserved.
            pool = MemoryPool(memory["current"], memory["current"], memory["peak"])
            found[LogicalDevice("gpu", ordinal, "cuda")] = pool
        return found

    def synchronize(self) -> None:
        if self.is_started() is True:
            sys.modules["tensorflow"].test.experimental.sync_devices()

    def reset_peaks(self) -> bool:
        count = len(_cuda_ordinals("GPU")) if self.has_gpu() else 0
        for index in range(count):
            sys.modules["tensorflow"].config.experimental.reset_memory_stats(f"GPU:{index}")
        return count > 0

    def out_of_memory(self, error: BaseException) -> OutOfMemory | None:
        """Return the device, and the requested size if the error names a size instead of a shape."""
        if not isinstance(error, sys.modules["tensorflow"].errors.ResourceExhaustedError):
            return None
        named = re.search(r"/device:GPU:([0-9]{1,4})\b", str(error))
        ordinals = _cuda_ordinals("GPU") if named else []
        index = int(named[1]) if named else 0
        device = LogicalDevice("gpu", ordinals[index], "cuda") if index < len(ordinals) else None
        return OutOfMemory(device, wanted_in(str(error)))

    def empty_cache(self) -> str:
        if not self.has_gpu():
            return ""
        return "TensorFlow keeps its GPU memory until this process ends. %gpus with --growth uses less."

    def memory_variables(self, memory: MemorySettings) -> Mapping[str, str]:
        return {"TF_FORCE_GPU_ALLOW_GROWTH": "true"} if memory.growth else {}

    def limit_memory(self, memory: MemorySettings) -> None:
        """Make each GPU one logical device of the size of the limit.

        For growth, the environment variable is enough. TensorFlow reads the variable when it creates a device
        (TensorFlow 2.21, common_runtime/gpu/gpu_bfc_allocator.cc).

        Listing the GPUs starts CUDA. If TensorFlow has not listed them yet, this method adds the logical
        devices to the context, under the names that the GPUs will have.
        """
        if self.is_started() is True:
            self._limits.pop_all()  # they can no longer be changed or restored
            return
        self._limits.close()
        tf, context = sys.modules["tensorflow"], private(f"{_EAGER}:context")
        eager, kind = context() if context else None, private(f"{_EAGER}:PhysicalDevice")
        sizes = private_of(eager, f"{_EAGER}:Context._virtual_device_map")
        is_listed = private_of(eager, f"{_EAGER}:Context._physical_devices") is not None
        if memory.limit is not None and (sizes is None or kind is None):
            why = f"TensorFlow {tf.__version__} takes no --memory-limit before it starts"
            warn_once("TensorFlow's limit", f"{why}. Update gpu_magic.")
        elif memory.limit is not None:
            expected = [kind(f"/physical_device:GPU:{index}", "GPU") for index in range(memory.gpus)]
            gpus = tf.config.list_physical_devices("GPU") if is_listed else expected
            # TensorFlow refuses its growth option together with a limit. The environment variable works.
            whole = tf.config.LogicalDeviceConfiguration(memory_limit=memory.limit / (1 << 20))  # in MiB
            self._limits.callback(_restore, sizes, dict(sizes), gpus)
            sizes.update({gpu: [whole] for gpu in gpus})


def mirrored(devices: tuple[LogicalDevice, ...]) -> AbstractContextManager[Any]:
    """Return the scope of a MirroredStrategy over these devices. The same devices share one strategy."""
    names = tuple(map(FRAMEWORK.name_of, devices))
    if names not in _strategies:
        _strategies[names] = sys.modules["tensorflow"].distribute.MirroredStrategy(list(names))
    return _strategies[names].scope()  # type: ignore[no-any-return]


def _index_of(device: Any) -> int:
    return int(device.name.rpartition(":")[2])


def _cuda_ordinals(kind: str) -> list[int]:
    """Return the CUDA ordinal of each logical GPU, or TensorFlow's own index of each logical CPU.

    TensorFlow orders logical devices like its physical devices. The order of the visible devices is ignored.
    """
    tf: Any = sys.modules["tensorflow"]
    found: list[int] = []
    for physical in sorted(tf.config.get_visible_devices(kind), key=_index_of):
        logical = tf.config.get_logical_device_configuration(physical)
        found += [_index_of(physical)] * (len(logical) if logical else 1)
    return found if kind == "GPU" else list(range(len(found)))


def _logical_device(device: str) -> LogicalDevice | str:
    """Convert a CPU or GPU of this process. Return TensorFlow's name of another device."""
    kind, _, index = device.rpartition("device:")[2].partition(":")
    is_of_another_worker = device.startswith("/job:") and not device.startswith(f"{_JOB}/")
    if is_of_another_worker or kind not in ("CPU", "GPU") or not index.isdecimal():
        return device
    if kind == "CPU":
        return LogicalDevice("cpu", int(index))
    ordinals = _cuda_ordinals("GPU")
    return LogicalDevice("gpu", ordinals[int(index)], "cuda") if int(index) < len(ordinals) else device


def _restore(settings: dict[Any, Any], before: dict[Any, Any], gpus: Sequence[Any]) -> None:
    for gpu in gpus:
        settings.pop(gpu, None)
        if gpu in before:
            settings[gpu] = before[gpu]


FRAMEWORK = TensorFlow()
