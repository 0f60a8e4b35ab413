"""JAX: its backends, devices and default device."""

from __future__ import annotations

import math
import os
import sys
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks.base import Components, Framework, Holding, MemoryPool, OutOfMemory, wanted_in
from gpu_magic.frameworks.private import private, private_of
from gpu_magic.frameworks.target import LogicalDevice
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gpu_magic.devices.model import Unknown
    from gpu_magic.frameworks.base import MemorySettings

__all__ = ["FRAMEWORK", "has_plugin"]

_BACKENDS = "jax._src.xla_bridge:_backends"

# The default devices that JAX accepts before it has started (JAX 0.10, `_validate_default_device`).
_PLATFORMS = ("cpu", "gpu", "tpu")


class Jax(Framework):
    """`jax`, through its backends."""

    name = "JAX"
    module = "jax"
    needs = ("Array", "Device", "default_device", "local_devices", "tree_util")
    preallocates = True

    def has_gpu(self) -> bool:
        """Return whether JAX has started a GPU backend."""
        if (backends := private(_BACKENDS)) is not None:
            return not {"cuda", "rocm", "gpu"}.isdisjoint(backends)
        return self.is_started() is True and bool(_devices_like(LogicalDevice("gpu", 0)))

    def is_started(self) -> bool | Unknown:
        if (backends := private(_BACKENDS)) is not None:
            return bool(backends)
        if (are_initialized := private("jax._src.xla_bridge:backends_are_initialized")) is not None:
            return bool(are_initialized())
        if "jax._src" not in sys.modules:  # another module named jax
            return False
        return self._does_not_tell()

    def without_cuda(self) -> str:
        if self.has_gpu() or has_plugin():
            return ""
        return (
            f"JAX {sys.modules['jax'].__version__} has no CUDA plugin and uses no GPU: pip install -U "
            '"jax[cuda13]" ("jax[cuda12]" with a driver before R580), then restart Python.'
        )

    def statement_for(self, ordinal: int) -> str:
        return f'jax.config.update("jax_default_device", jax.devices("gpu")[{ordinal}])'

    def problem(self, device: LogicalDevice) -> str:
        devices = _devices_like(device)
        if device.index in devices:
            return ""
        if device.kind == "gpu" and not devices:
            kind = "GPU" if _platform(device) == "gpu" else device.type
            return f"JAX {sys.modules['jax'].__version__} has no {kind} here"
        kind = "cpu" if device.kind == "cpu" else device.type or "cuda"
        return f"JAX has {listed(f'{kind}:{index}' for index in devices)}"

    def name_of(self, device: LogicalDevice) -> str:
        return f"{device.type or device.kind}:{device.index}"

    def raises_itself(self, device: LogicalDevice) -> bool:
        """Return whether `scope` sets a platform. JAX raises an error if it starts without that platform."""
        return device.index == 0 and self.is_started() is not True and _platform(device) in _PLATFORMS

    def own_device(self, device: LogicalDevice) -> Any:
        """Return JAX's object for a device. Before JAX has started, return the name of the platform."""
        return _devices_like(device)[device.index] if self.is_started() is True else _platform(device)

    def device_of(self, obj: object) -> LogicalDevice | str | None:
        return _logical_device(obj) if isinstance(obj, sys.modules["jax"].Device) else None

    def is_waiting(self, device: LogicalDevice) -> bool:
        return _platform(device) in _PLATFORMS and self.is_started() is not True and device.index != 0

    def scope(self, device: LogicalDevice, is_used: Callable[[], bool]) -> AbstractContextManager[Any]:
        """Set the default device. Before JAX has started, set a platform, which means its first device.

        Listing the devices starts JAX. JAX can then allocate three quarters of the memory of each visible
        GPU, even if only Keras has imported JAX and the user never uses it.
        """
        if self.raises_itself(device):
            return _default_device(_platform(device))
        if _platform(device) not in _PLATFORMS:
            return _default_device(_AbsentDevice(device, f"it has no {device.type}."))
        if self.is_started() is True or is_used():
            found = _devices_like(device).get(device.index)
            return _default_device(found or _AbsentDevice(device, f"{self.problem(device)}."))
        why = "it did not know its devices before it started. It has started now: run this again."
        return _default_device(_AbsentDevice(device, why))

    def narrow(self, ordinals: Sequence[int]) -> tuple[str, AbstractContextManager[Any] | None]:
        """Set the default device. JAX cannot hide the other GPUs after CUDA has started."""
        config, device = sys.modules["jax"].config, LogicalDevice("gpu", ordinals[0])
        if why := self.problem(device):
            return why, None
        undo = ExitStack()
        undo.callback(config.update, "jax_default_device", config.jax_default_device)
        config.update("jax_default_device", _devices_like(device)[device.index])
        return f"its default device is {device}. Others can still be named", undo

    # Arrays

    def is_array(self, kind: type) -> bool:
        # Not isinstance(): with jax.Array it reads the value's __class__, which any object can fake.
        return issubclass(kind, sys.modules["jax"].Array | sys.modules["jax"].core.Tracer)

    def holdings(self, array: Any) -> Sequence[Holding]:
        """Return an array's shards, one for each device. A replicated array has its data on each."""
        jax: Any = sys.modules["jax"]
        if isinstance(array, jax.core.Tracer) or array.is_deleted():
            return []
        if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
            return self.holdings(jax.random.key_data(array))
        return [
            Holding(_logical_device(shard.device), shard.data.nbytes, _key(shard, array))
            for shard in array.addressable_shards
        ]

    def components(self, obj: Any) -> Components | None:
        """Return the children of a registered pytree, such as a Flax or Equinox module or an Optax state."""
        tree = sys.modules["jax"].tree_util
        children, shape = tree.tree_flatten(obj, is_leaf=lambda node: node is not obj)
        if len(children) == 1 and children[0] is obj:
            return None
        return Components(children, lambda _, new: shape.unflatten(new), in_place=False)

    def origin(self, array: Any, device: LogicalDevice) -> str:
        jax: Any = sys.modules["jax"]
        if not self.is_array(type(array)):
            dtype = jax.dtypes.canonicalize_dtype(array.dtype)
            if dtype != array.dtype:
                raise PlacementError(
                    f"JAX would convert {array.dtype} to {dtype} because jax_enable_x64 is not set: "
                    f'convert it yourself, with .astype("{dtype}").'
                )
            return "NumPy"
        is_traced = isinstance(array, jax.core.Tracer)
        if is_traced or array.is_deleted():
            why = "is traced" if is_traced else "was donated and thereby deleted"
            raise PlacementError(f"A JAX array of shape {array.shape} {why}: it has no data to move.")
        origins = {str(_logical_device(one)) for one in array.devices()}
        target = str(_logical_device(_devices_like(device)[device.index]))
        return "" if origins == {target} else listed(sorted(origins))

    def copied(self, array: Any, device: LogicalDevice, memo: dict[Any, Any]) -> Any:
        return sys.modules["jax"].device_put(array, _devices_like(device)[device.index]).block_until_ready()

    # Memory

    def free_bytes(self, device: LogicalDevice) -> int | None:
        """Return the free bytes of JAX's own pool, which has reserved a part of the GPU."""
        if device.kind == "cpu" or self.is_started() is not True:
            return None
        stats = _devices_like(device)[device.index].memory_stats() or {}
        return int(stats["bytes_limit"] - stats["bytes_in_use"]) if "bytes_limit" in stats else None

    def pools(self) -> Mapping[LogicalDevice, MemoryPool]:
        devices = _devices_like(LogicalDevice("gpu", 0)) if self.has_gpu() else {}
        stats = {index: device.memory_stats() or {} for index, device in devices.items()}
        return {
            LogicalDevice("gpu", index, "cuda"): MemoryPool(
                one["bytes_in_use"],
                one.get("pool_bytes", one["bytes_in_use"]),
                one.get("peak_bytes_in_use"),
                one.get("num_allocs"),
            )
            for index, one in stats.items()
            if "bytes_in_use" in one
        }

    def synchronize(self) -> None:
        if self.is_started() is True:  # listing the arrays would start it
            jax: Any = sys.modules["jax"]
            jax.block_until_ready(jax.live_arrays())

    def out_of_memory(self, error: BaseException) -> OutOfMemory | None:
        """Return the requested size. The error does not name the device."""
        text = str(error)
        is_ours = isinstance(error, sys.modules["jax"].errors.JaxRuntimeError)
        return OutOfMemory(None, wanted_in(text)) if is_ours and "RESOURCE_EXHAUSTED" in text else None

    def empty_cache(self) -> str:
        if not self.has_gpu():
            return ""
        return "JAX keeps its GPU memory until this process ends. %gpus with --growth uses less."

    def memory_variables(self, memory: MemorySettings) -> Mapping[str, str]:
        """Return the variables of JAX's GPU client (jaxlib 0.10, `generate_pjrt_gpu_plugin_options`).

        The fraction has two names. JAX does not start with both, so the name that is already set is used.
        """
        variables = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} if memory.growth else {}
        if memory.fraction is not None:
            new = "XLA_CLIENT_MEM_FRACTION"
            name = new if new in os.environ else "XLA_PYTHON_CLIENT_MEM_FRACTION"
            variables[name] = f"{math.floor(memory.fraction * 10_000) / 10_000}"  # never more than the limit
        return variables


def has_plugin() -> bool:
    """Return whether JAX finds a plugin, such as CUDA's (JAX 0.10, `discover_pjrt_plugins`)."""
    if sys.modules.get("jax_plugins") is not None:
        return True
    from importlib.metadata import entry_points  # slow, but JAX has already imported it

    return bool(entry_points(group="jax_plugins"))


@contextmanager
def _default_device(device: Any) -> Iterator[None]:
    """Enter `jax.default_device`. At the end, also undo a `jax.config.update` from inside the block.

    `jax.config.update` sets the default device of all threads. Only blocks in the main thread undo it,
    because a change that another thread sees may come from the main thread.
    """
    jax: Any = sys.modules["jax"]
    before = jax.config.jax_default_device
    try:
        with jax.default_device(device):
            yield
    finally:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and jax.config.jax_default_device is not before:
            jax.config.update("jax_default_device", before)


class _AbsentDevice:
    """Stands in for a device that JAX cannot use. Any computation on it raises an error.

    JAX accepts any object whose type has "Device" in its name (JAX 0.10, `_validate_default_device`). It
    reads the object's attributes when it creates the first array.
    """

    def __init__(self, device: LogicalDevice, why: str) -> None:
        self.__dict__["_why"] = f"JAX cannot run this on {device}: {why}"
        self.__dict__["_device"] = device

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _devices_like(self._device)  # starts JAX, which the user's code needs anyway
        raise PlacementError(self._why)


def _platform(device: LogicalDevice) -> str:
    """Return JAX's name for the kind of a device. "gpu" means CUDA or ROCm."""
    return {"": device.kind, "cuda": "gpu"}.get(device.type, device.type)


def _devices_like(device: LogicalDevice) -> dict[int, Any]:
    """Return this process's devices of the same kind, by index. The index of a GPU is its CUDA ordinal."""
    try:
        devices = sys.modules["jax"].local_devices(backend=_platform(device))
    except RuntimeError:  # JAX lacks this platform
        return {}
    return {_ordinal_of(device, index): device for index, device in enumerate(devices)}


def _ordinal_of(device: Any, index: int) -> int:
    """Return a GPU's CUDA ordinal, also if `jax_cuda_visible_devices` hides GPUs. For a CPU, the index."""
    ordinal = private_of(device, "jax:Device.local_hardware_id")
    return index if device.platform == "cpu" or ordinal is None or ordinal < 0 else int(ordinal)


def _logical_device(device: Any) -> LogicalDevice | str:
    """Convert a device of JAX to gpu_magic's. Return JAX's name if it is neither a CPU nor a GPU."""
    if device.platform == "cpu":
        return LogicalDevice("cpu", device.id)
    return (
        LogicalDevice("gpu", _ordinal_of(device, device.id), "cuda")
        if device.platform == "gpu"
        else str(device)
    )


def _key(shard: Any, array: Any) -> tuple[str, int]:
    """Return a key that is the same for arrays and NumPy views that share memory, if the address is known."""
    if (address := private_of(shard.data, "jax:Array.unsafe_buffer_pointer")) is None:
        return f"JAX on {shard.device}", id(array)
    where = "address" if shard.device.platform == "cpu" else str(shard.device)
    return where, address()


FRAMEWORK = Jax()
