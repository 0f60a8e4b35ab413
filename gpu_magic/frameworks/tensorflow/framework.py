"""TensorFlow's plug-in."""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks.answers import Components, Holding, MemoryPool, OutOfMemory
from gpu_magic.frameworks.base import Framework
from gpu_magic.frameworks.out_of_memory import wanted_in
from gpu_magic.frameworks.tensorflow.devices import (
    context,
    cuda_ordinals,
    existing_context,
    index_of,
    is_started,
    logical_device,
    name_of,
    problem,
)
from gpu_magic.frameworks.tensorflow.scopes import ABSENT, DeviceScope, FirstDeviceScope
from gpu_magic.selection.target import CPU, LogicalDevice
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gpu_magic.selection.memory import MemorySettings

__all__ = ["FRAMEWORK"]


class TensorFlow(Framework):
    """`tensorflow`, through its eager context."""

    name = "TensorFlow"
    module = "tensorflow"
    needs = ("Module", "config", "device", "distribute")
    preallocates = True

    def __init__(self) -> None:
        self._limits = ExitStack()  # restores what `limit_memory` has changed

    def has_gpu(self) -> bool:
        """Return whether a GPU is among its context's devices.

        The context has none until it is initialized, which merely entering `tf.device` does.
        """
        devices = getattr(existing_context(), "_logical_devices", None) or ()
        return any(device.device_type == "GPU" for device in devices)

    def is_started(self) -> bool:
        return is_started()

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
        return problem(device)

    def name_of(self, device: LogicalDevice) -> str:
        return name_of(device)

    def device_of(self, obj: object) -> LogicalDevice | str | None:
        """Return the device of a physical one, which has CUDA's number, or of a logical one."""
        config: Any = sys.modules["tensorflow"].config
        if isinstance(obj, config.LogicalDevice):
            return logical_device(obj.name)
        if not isinstance(obj, config.PhysicalDevice):
            return None
        if obj.device_type == "GPU":
            return LogicalDevice("gpu", index_of(obj), "cuda")
        return LogicalDevice("cpu", index_of(obj)) if obj.device_type == "CPU" else obj.name

    def scope(self, device: LogicalDevice, is_used: Callable[[], bool]) -> AbstractContextManager[Any]:
        del is_used  # its device can be set without starting it
        if not is_started():
            return FirstDeviceScope(device)
        if device != CPU and problem(device):
            return DeviceScope(f"{ABSENT}/device:{device.kind.upper()}:{device.index}")
        return DeviceScope(name_of(device))

    def is_array(self, kind: type) -> bool:
        tf: Any = sys.modules["tensorflow"]
        is_tensor = issubclass(kind, tf.Tensor | tf.Variable)
        return is_tensor and not issubclass(kind, tf.distribute.DistributedValues)

    def holdings(self, array: Any) -> Sequence[Holding]:
        try:
            return [Holding(logical_device(array.device), _nbytes(array), ("TensorFlow", id(array)))]
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
            return Components(inner, partial(_packed, obj), in_place=False)
        return None

    def unmovable(self, kind: type) -> str:
        tf: Any = sys.modules["tensorflow"]
        for base, name in ((tf.Variable, "tf.Variable"), (tf.Module, "tf.Module")):
            if issubclass(kind, base):
                way = "create it again in a cell with %%on_gpu, and assign to it"
                return f"TensorFlow can't move a {name}: {way}."
        return ""

    def origin(self, array: Any, device: LogicalDevice) -> str:
        """Return it. Strings are on the CPU, and stay there."""
        if not hasattr(array, "numpy"):
            raise PlacementError("A symbolic TensorFlow tensor has no data to move.")
        origin = logical_device(array.device)
        target = LogicalDevice("gpu", device.index, "cuda") if device.kind == "gpu" else device
        return "" if array.dtype == sys.modules["tensorflow"].string or origin == target else str(origin)

    def copied(self, array: Any, device: LogicalDevice, memo: dict[Any, Any]) -> Any:
        del memo  # no two of its tensors share memory
        tf: Any = sys.modules["tensorflow"]
        with tf.device(name_of(device)):
            return tf.identity(array)

    def pools(self) -> Mapping[LogicalDevice, MemoryPool]:
        tf: Any = sys.modules["tensorflow"]
        found = {}
        for index, ordinal in enumerate(cuda_ordinals("GPU") if self.has_gpu() else ()):
            memory = tf.config.experimental.get_memory_info(f"GPU:{index}")
            # It does not say how much it has reserved.
            pool = MemoryPool(memory["current"], memory["current"], memory["peak"])
            found[LogicalDevice("gpu", ordinal, "cuda")] = pool
        return found

    def reset_peaks(self) -> bool:
        if not self.has_gpu():
            return False
        for index, _ in enumerate(cuda_ordinals("GPU")):
            sys.modules["tensorflow"].config.experimental.reset_memory_stats(f"GPU:{index}")
        return True

    def out_of_memory(self, error: BaseException) -> OutOfMemory | None:
        """Return it; the error says the shape that did not fit."""
        if not isinstance(error, sys.modules["tensorflow"].errors.ResourceExhaustedError):
            return None
        named = re.search(r"/device:GPU:([0-9]{1,4})\b", str(error))
        ordinals = list(cuda_ordinals("GPU")) if named else []
        index = int(named[1]) if named else 0
        device = LogicalDevice("gpu", ordinals[index], "cuda") if index < len(ordinals) else None
        return OutOfMemory(device, wanted_in(str(error)))

    def empty_cache(self) -> str:
        if not self.has_gpu():
            return ""
        return (
            "TensorFlow keeps what it took of a GPU until this process ends; %gpus ... --growth takes less."
        )

    def narrow(self, ordinals: Sequence[int]) -> tuple[str, AbstractContextManager[Any] | None]:
        """Set the visible devices, as long as it has not started; TensorFlow refuses after that."""
        tf: Any = sys.modules["tensorflow"]
        if is_started():
            return "it has started and keeps the devices that it has", None
        physical = {index_of(gpu): gpu for gpu in tf.config.list_physical_devices("GPU")}
        if not physical and not tf.test.is_built_with_gpu_support():
            return f"TensorFlow {tf.__version__} is built without CUDA", None
        missing = [f"cuda:{ordinal}" for ordinal in ordinals if ordinal not in physical]
        if missing:
            return f"it does not list {listed(missing)}", None
        undo = ExitStack()
        undo.callback(self._set_visible, tf.config.get_visible_devices("GPU"))
        self._set_visible([physical[ordinal] for ordinal in ordinals])
        names = [f"cuda:{ordinal} as /GPU:{index}" for index, ordinal in enumerate(cuda_ordinals("GPU"))]
        return f"it sees {listed(names, 'no GPU')}", undo

    def _set_visible(self, gpus: Sequence[Any]) -> None:
        if not is_started():  # TensorFlow refuses after that
            sys.modules["tensorflow"].config.set_visible_devices(gpus, "GPU")

    def memory_variables(self, memory: MemorySettings) -> Mapping[str, str]:
        return {"TF_FORCE_GPU_ALLOW_GROWTH": "true"} if memory.growth else {}

    def limit_memory(self, memory: MemorySettings) -> None:
        """Make each GPU one logical device of that size; set growth where its devices are listed already.

        Listing them starts CUDA, so where they are not listed yet the context gets the logical devices
        beforehand, under the names that the GPUs will have. For growth, the environment variable is enough
        until then.
        """
        eager = context()
        if is_started():
            self._limits.pop_all()  # it can't be changed any more, nor restored
            return
        self._limits.close()
        tf: Any = sys.modules["tensorflow"]
        is_listed = eager._physical_devices is not None  # noqa: SLF001
        kind = sys.modules["tensorflow.python.eager.context"].PhysicalDevice
        expected = [kind(f"/physical_device:GPU:{index}", "GPU") for index in range(memory.gpus)]
        gpus = tf.config.list_physical_devices("GPU") if is_listed else expected
        if memory.limit is not None:
            # TensorFlow refuses growth together with this; the environment variable still sets it.
            whole = tf.config.LogicalDeviceConfiguration(memory_limit=memory.limit / (1 << 20))  # in MiB
            sizes = eager._virtual_device_map  # noqa: SLF001
            self._limits.callback(_restore, sizes, dict(sizes), gpus)
            sizes.update({gpu: [whole] for gpu in gpus})
        elif memory.growth and is_listed:
            growth = eager._memory_growth_map  # noqa: SLF001 - its setter takes no None, which is its initial value
            self._limits.callback(_restore, growth, dict(growth), gpus)
            for gpu in gpus:
                tf.config.experimental.set_memory_growth(gpu, enable=True)


def _nbytes(array: Any) -> int:
    return int(array.shape.num_elements() or 0) * int(array.dtype.size)


def _packed(obj: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    del old
    return sys.modules["tensorflow"].nest.pack_sequence_as(obj, new, expand_composites=True)


def _restore(settings: dict[Any, Any], before: dict[Any, Any], gpus: Sequence[Any]) -> None:
    for gpu in gpus:
        settings.pop(gpu, None)
        if gpu in before:
            settings[gpu] = before[gpu]


FRAMEWORK = TensorFlow()
