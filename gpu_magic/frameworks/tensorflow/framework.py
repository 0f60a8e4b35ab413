"""TensorFlow, and Keras on it."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks.base import Components, Framework, Holding, MemoryPool
from gpu_magic.frameworks.copying import CopyMethod, CopyTransfer
from gpu_magic.frameworks.nested_scopes import Nesting
from gpu_magic.selection.target import CPU, LogicalDevice
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gpu_magic.frameworks.base import Transfer
    from gpu_magic.selection.memory import Memory

__all__ = ["FRAMEWORK"]

_HERE = "/job:localhost/replica:0/task:0"
_nesting = Nesting()


class TensorFlow(Framework):
    """`tensorflow`, through its eager context (TensorFlow 2.21, python/eager/context.py)."""

    name = "TensorFlow"
    module = "tensorflow"
    needs = ("Module", "config", "device", "distribute")
    preallocates = True

    def __init__(self) -> None:
        self._limits = ExitStack()  # undoes what `limit_memory` has told

    def has_gpu(self) -> bool:
        """Tell whether a GPU is among its context's devices.

        The context has none until it is initialised, which merely entering `tf.device` does.
        """
        devices = getattr(_context(), "_logical_devices", None) or ()
        return any(device.device_type == "GPU" for device in devices)

    def is_started(self) -> bool:
        return getattr(_context(), "_context_handle", None) is not None

    def statement_for(self, ordinal: int) -> str:
        return f'with tf.device("/GPU:{ordinal}"): ...'

    def problem(self, place: LogicalDevice) -> str:
        """Count its devices: TensorFlow itself takes the CPU, in silence, where a missing one is named."""
        tf: Any = sys.modules["tensorflow"]
        if place.type not in ("", "cuda"):
            return f"TensorFlow has no {place.type}"
        kind = place.kind.upper()
        there = _ordinals(kind)
        if place.index in there:
            return ""
        if kind == "CPU":
            return f"TensorFlow has {listed(f'cpu:{index}' for index in there)}"
        if not tf.test.is_built_with_gpu_support():
            return f"TensorFlow {tf.__version__} is built without CUDA"
        names = [f"cuda:{ordinal} (as /GPU:{index})" for index, ordinal in enumerate(there)]
        return f"TensorFlow sees {listed(names, 'no GPU')}"

    def name_of(self, place: LogicalDevice) -> str:
        """Return `/GPU:i`; i counts the devices it sees, fewer than CUDA's where it was told of some only."""
        if place.kind == "cpu":
            return f"/CPU:{place.index}"
        there = _ordinals("GPU")
        return f"/GPU:{there.index(place.index) if place.index in there else place.index}"

    def scope(self, place: LogicalDevice, is_used: Callable[[], bool]) -> AbstractContextManager[Any]:
        del is_used  # it can be placed without being started
        context = _make_context()
        if not self.is_started():
            return _Waiting(self, context, place)
        if place != CPU and self.problem(place):
            return _Absent(context, f"/{place.kind.upper()}:{place.index}")
        return _Placed(context, self.name_of(place))

    def is_array(self, kind: type) -> bool:
        tf: Any = sys.modules["tensorflow"]
        is_one = issubclass(kind, tf.Tensor | tf.Variable)
        return is_one and not issubclass(kind, tf.distribute.DistributedValues)

    def holdings(self, thing: Any) -> Sequence[Holding]:
        try:
            size = (thing.shape.num_elements() or 0) * thing.dtype.size
            return [Holding(_place(thing.device), size, ("TensorFlow", id(thing)))]
        except (AttributeError, ValueError):  # symbolic ones of a graph hold nothing
            return []

    def components(self, thing: Any, to: LogicalDevice | None = None) -> Components | None:
        del to
        tf: Any = sys.modules["tensorflow"]
        kind = type(thing)
        if issubclass(kind, tf.distribute.DistributedValues):  # a mirrored variable
            return Components(thing.values)
        if issubclass(kind, tf.Module):
            return Components(thing.variables)
        if issubclass(kind, tf.RaggedTensor | tf.SparseTensor | tf.IndexedSlices):
            inner = tf.nest.flatten(thing, expand_composites=True)
            return Components(inner, partial(_packed, thing), is_kept=False)
        return None

    def unmovable(self, kind: type) -> str:
        tf: Any = sys.modules["tensorflow"]
        for one, name in ((tf.Variable, "tf.Variable"), (tf.Module, "tf.Module")):
            if issubclass(kind, one):
                return (
                    f"TensorFlow can't move a {name}: make it anew in a cell with %%on_gpu, and assign to it."
                )
        return ""

    def transfer(self, place: LogicalDevice) -> Transfer:
        """Copy with `tf.identity`; strings live on the CPU."""
        tf: Any = sys.modules["tensorflow"]

        def origin(tensor: Any) -> str:
            if not hasattr(tensor, "numpy"):
                raise PlacementError("A symbolic TensorFlow tensor has no data to move.")
            here = "" if tensor.dtype == tf.string else str(_place(tensor.device))
            there = LogicalDevice("gpu", place.index, "cuda") if place.kind == "gpu" else place
            return "" if here == str(there) else here

        def copy(tensor: Any) -> Any:
            with tf.device(self.name_of(place)):
                return tf.identity(tensor)

        return CopyTransfer(CopyMethod(origin, lambda tensor: self.holdings(tensor)[0].nbytes, copy))

    def pools(self) -> Mapping[LogicalDevice, MemoryPool]:
        tf: Any = sys.modules["tensorflow"]
        found = {}
        for index, ordinal in enumerate(_ordinals("GPU") if self.has_gpu() else ()):
            used = tf.config.experimental.get_memory_info(f"GPU:{index}")["current"]
            found[LogicalDevice("gpu", ordinal, "cuda")] = MemoryPool(
                used, used
            )  # it does not say what it keeps
        return found

    def empty_cache(self) -> str:
        if not self.has_gpu():
            return ""
        return "TensorFlow keeps what it took of a GPU until the kernel ends; %gpus ... --growth takes less."

    def narrow(self, ordinals: Sequence[int]) -> tuple[str, AbstractContextManager[Any] | None]:
        """Set the visible devices, as long as it has not started; TensorFlow refuses after that."""
        tf: Any = sys.modules["tensorflow"]
        if self.is_started():
            return "it has started and keeps the devices that it has", None
        physical = {_number(one): one for one in tf.config.list_physical_devices("GPU")}
        if not physical and not tf.test.is_built_with_gpu_support():
            return f"TensorFlow {tf.__version__} is built without CUDA", None
        missing = [f"cuda:{ordinal}" for ordinal in ordinals if ordinal not in physical]
        if missing:
            return f"it does not list {listed(missing)}", None
        before = tf.config.get_visible_devices("GPU")
        tf.config.set_visible_devices([physical[ordinal] for ordinal in ordinals], "GPU")
        names = [f"cuda:{ordinal} as /GPU:{index}" for index, ordinal in enumerate(_ordinals("GPU"))]
        return f"it sees {listed(names, 'no GPU')}", _Visible(before)

    def memory_variables(self, memory: Memory) -> Mapping[str, str]:
        return {"TF_FORCE_GPU_ALLOW_GROWTH": "true"} if memory.growth else {}

    def limit_memory(self, memory: Memory) -> None:
        """Make each GPU one logical device of that size; set growth where its devices are listed already.

        Listing them starts CUDA, so where they are not listed yet the context is given the logical devices
        beforehand, under the names that the GPUs will have. For growth the variable is enough until then.
        """
        context = _make_context()
        if self.is_started():
            self._limits.pop_all()  # nothing of it can change any more
            return
        self._limits.close()
        tf: Any = sys.modules["tensorflow"]
        is_listed = context._physical_devices is not None  # noqa: SLF001
        kind = sys.modules["tensorflow.python.eager.context"].PhysicalDevice
        named = [kind(f"/physical_device:GPU:{index}", "GPU") for index in range(memory.gpus)]
        gpus = tf.config.list_physical_devices("GPU") if is_listed else named
        if memory.limit is not None:  # TensorFlow refuses growth beside it; the variable does that then
            parts = [tf.config.LogicalDeviceConfiguration(memory_limit=memory.limit / (1 << 20))]
            sizes = context._virtual_device_map  # noqa: SLF001
            self._limits.callback(_put_back, sizes, dict(sizes), gpus)
            sizes.update(dict.fromkeys(gpus, parts))
        elif memory.growth and is_listed:
            growth = context._memory_growth_map  # noqa: SLF001 - its own setter takes no None, as it begins with
            self._limits.callback(_put_back, growth, dict(growth), gpus)
            for gpu in gpus:
                tf.config.experimental.set_memory_growth(gpu, enable=True)


def _packed(thing: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    del old
    return sys.modules["tensorflow"].nest.pack_sequence_as(thing, new, expand_composites=True)


def _put_back(told: dict[Any, Any], before: dict[Any, Any], gpus: Sequence[Any]) -> None:
    for gpu in gpus:
        told.pop(gpu, None)
        told.update({gpu: before[gpu]} if gpu in before else {})


class _Placed:
    """`tf.device`, except that it sets back what was before also where the block has left others open."""

    def __init__(self, context: Any, name: str) -> None:
        self._context, self._name = context, name

    def __enter__(self) -> None:
        self.before = self._context.device_name, self._context.device_spec
        self._context.device(self._name).__enter__()
        _nesting.enter(self)

    def __exit__(self, *exc_info: object) -> None:
        if _nesting.leave(self):
            self._context._set_device(*self.before)  # noqa: SLF001


class _Waiting:
    """Gives a context that has not started the device that it is to start with.

    `tf.device` would start it, and that takes nearly all the memory of every GPU it sees, also for somebody
    whose TensorBoard has imported TensorFlow and who will never use it.
    """

    def __init__(self, framework: TensorFlow, context: Any, place: LogicalDevice) -> None:
        self._framework, self._context, self._place = framework, context, place

    def __enter__(self) -> None:
        context = self._context
        self.before = context.device_name, context.device_spec
        # What it is to be called once there are devices: asking for them now would start CUDA.
        name = f"{_HERE}/device:{self._place.kind.upper()}:{self._place.index}"
        if context._physical_devices is not None:  # noqa: SLF001
            name = _HERE + self._framework.name_of(self._place).replace("/", "/device:")
        context._set_device(name, sys.modules["tensorflow"].DeviceSpec.from_string(name))  # noqa: SLF001
        _nesting.enter(self)

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        if _nesting.leave(self):
            self._context._set_device(*self.before)  # noqa: SLF001
        is_asked = kind is None and self._place != CPU and self._framework.is_started()
        if is_asked and (why := self._framework.problem(self._place)):
            raise PlacementError(f"TensorFlow was used here and ran on the CPU, not on {self._place}: {why}.")


class _Absent(_Placed):
    """Names a device that is not there, and keeps TensorFlow from taking the CPU instead: using it raises."""

    def __enter__(self) -> None:
        super().__enter__()
        self._was_soft = self._context.soft_device_placement
        self._context.soft_device_placement = False

    def __exit__(self, *exc_info: object) -> None:
        self._context.soft_device_placement = self._was_soft
        super().__exit__(*exc_info)


class _Visible:
    """Puts the visible devices back at its exit, as long as TensorFlow lets them be changed."""

    def __init__(self, before: list[Any]) -> None:
        self._before = before

    def __enter__(self) -> None: ...

    def __exit__(self, *exc_info: object) -> None:
        if not FRAMEWORK.is_started():
            sys.modules["tensorflow"].config.set_visible_devices(self._before, "GPU")


def _context() -> Any:
    return getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)


def _make_context() -> Any:
    """Return the context, made where there is none yet; that starts nothing."""
    return sys.modules["tensorflow.python.eager.context"].context()


def _number(device: Any) -> int:
    return int(device.name.rpartition(":")[2])


def _ordinals(kind: str) -> list[int]:
    """Return, for each logical device of a kind, the number CUDA gives it; for CPUs its own.

    TensorFlow makes them in the order of its physical devices, whatever order they were made visible in.
    """
    tf: Any = sys.modules["tensorflow"]
    found: list[int] = []
    for physical in sorted(tf.config.get_visible_devices(kind), key=_number):
        parts = tf.config.get_logical_device_configuration(physical)
        found += [_number(physical)] * (len(parts) if parts else 1)
    return found if kind == "GPU" else list(range(len(found)))


def _place(device: str) -> LogicalDevice | str:
    kind, _, index = device.rpartition("device:")[2].partition(":")
    if kind not in ("CPU", "GPU") or not index.isdecimal():
        return device
    if kind == "CPU":
        return LogicalDevice("cpu", int(index))
    return LogicalDevice("gpu", _ordinals("GPU")[int(index)], "cuda")


FRAMEWORK = TensorFlow()
