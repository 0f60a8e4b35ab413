"""JAX's plug-in."""

from __future__ import annotations

import math
import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks.answers import Components, Holding, MemoryPool, OutOfMemory
from gpu_magic.frameworks.base import Framework
from gpu_magic.frameworks.jax.devices import backends, devices_like, has_plugin, logical_device, platform
from gpu_magic.frameworks.jax.scopes import AbsentDevice, DefaultDevice, global_default
from gpu_magic.frameworks.out_of_memory import wanted_in
from gpu_magic.selection.target import LogicalDevice
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gpu_magic.selection.memory import MemorySettings

__all__ = ["FRAMEWORK"]

# The names that it takes as a default device before it has started (JAX 0.10, `_validate_default_device`).
_PLATFORMS = ("cpu", "gpu", "tpu")


class Jax(Framework):
    """`jax`, through its backends."""

    name = "JAX"
    module = "jax"
    needs = ("Array", "Device", "default_device", "local_devices", "tree_util")
    preallocates = True

    def has_gpu(self) -> bool:
        """Return whether one of its backends is a GPU's."""
        return not {"cuda", "rocm", "gpu"}.isdisjoint(backends())

    def is_started(self) -> bool:
        return bool(backends())

    def without_cuda(self) -> str:
        jax: Any = sys.modules["jax"]
        if self.has_gpu() or has_plugin():
            return ""
        return (
            f'JAX {jax.__version__} has no CUDA plugin and uses no GPU: pip install -U "jax[cuda13]" '
            '("jax[cuda12]" with a driver before R580), then restart Python.'
        )

    def statement_for(self, ordinal: int) -> str:
        return f'jax.config.update("jax_default_device", jax.devices("gpu")[{ordinal}])'

    def problem(self, device: LogicalDevice) -> str:
        devices = devices_like(device)
        if device.index in devices:
            return ""
        jax: Any = sys.modules["jax"]
        if device.kind == "gpu" and not devices:
            return f"JAX {jax.__version__} has no {'GPU' if platform(device) == 'gpu' else device.type} here"
        kind = "cpu" if device.kind == "cpu" else device.type or "cuda"
        return f"JAX has {listed(f'{kind}:{index}' for index in devices)}"

    def name_of(self, device: LogicalDevice) -> str:
        return f"{device.type or device.kind}:{device.index}"

    def raises_itself(self, device: LogicalDevice) -> bool:
        """Return whether `scope` does not start it: JAX raises when it starts and lacks the platform."""
        return device.index == 0 and not self.is_started() and platform(device) in _PLATFORMS

    def own_device(self, device: LogicalDevice) -> Any:
        """Return its object for a device; a JAX that has not started has the names of platforms alone."""
        return devices_like(device)[device.index] if self.is_started() else platform(device)

    def device_of(self, obj: object) -> LogicalDevice | str | None:
        return logical_device(obj) if isinstance(obj, sys.modules["jax"].Device) else None

    def is_waiting(self, device: LogicalDevice) -> bool:
        is_known = platform(device) in _PLATFORMS
        return is_known and not self.is_started() and not self.raises_itself(device)

    def scope(self, device: LogicalDevice, is_used: Callable[[], bool]) -> AbstractContextManager[Any]:
        """Set a device as the default; before JAX has started, a platform, which means its first device.

        Asking for its devices starts it, and that can take three quarters of the memory of every GPU it sees,
        also for somebody whose Keras has imported it and who will never use it.
        """
        if self.raises_itself(device):
            return DefaultDevice(platform(device))
        if platform(device) not in _PLATFORMS:
            return DefaultDevice(AbsentDevice(device, f"it has no {device.type}."))
        if self.is_started() or is_used():
            found = devices_like(device).get(device.index)
            return DefaultDevice(found or AbsentDevice(device, f"{self.problem(device)}."))
        why = "only its first device can be named before it starts. It has started now: run it again."
        return DefaultDevice(AbsentDevice(device, why))

    def is_array(self, kind: type) -> bool:
        return _is_array(kind)

    def holdings(self, array: Any) -> Sequence[Holding]:
        """Return an array's shards, one for each device; a replicated array has its data on each."""
        jax: Any = sys.modules["jax"]
        if isinstance(array, jax.core.Tracer) or array.is_deleted():
            return []
        if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
            return self.holdings(jax.random.key_data(array))
        return [
            Holding(logical_device(shard.device), shard.data.nbytes, _key(shard))
            for shard in array.addressable_shards
        ]

    def components(self, obj: Any) -> Components | None:
        """Return the children of a registered pytree: Flax's and Equinox's modules, Optax's states."""
        tree = sys.modules["jax"].tree_util
        children, shape = tree.tree_flatten(obj, is_leaf=lambda node: node is not obj)
        if len(children) == 1 and children[0] is obj:
            return None
        return Components(children, lambda _, new: shape.unflatten(new), in_place=False)

    def origin(self, array: Any, device: LogicalDevice) -> str:
        if not _is_array(type(array)):
            _check_dtype(array)
            return "NumPy"
        is_traced = isinstance(array, sys.modules["jax"].core.Tracer)
        if is_traced or array.is_deleted():
            why = "is traced" if is_traced else "was donated, and deleted by that"
            raise PlacementError(f"A JAX array of shape {array.shape} {why}: it has no data to move.")
        origins = {str(logical_device(one)) for one in array.devices()}
        target = str(logical_device(devices_like(device)[device.index]))
        return "" if origins == {target} else listed(sorted(origins))

    def copied(self, array: Any, device: LogicalDevice, memo: dict[Any, Any]) -> Any:
        del memo  # no two of its arrays share memory
        return sys.modules["jax"].device_put(array, devices_like(device)[device.index]).block_until_ready()

    def free_bytes(self, device: LogicalDevice) -> int | None:
        """Ask its own pool, which has reserved its part of the GPU; the CPU has no pool."""
        if device.kind == "cpu" or not self.is_started():
            return None
        stats = devices_like(device)[device.index].memory_stats() or {}
        if "bytes_limit" not in stats:
            return None
        return int(stats["bytes_limit"] - stats["bytes_in_use"])

    def pools(self) -> Mapping[LogicalDevice, MemoryPool]:
        devices = devices_like(LogicalDevice("gpu", 0)) if self.has_gpu() else {}
        found = {}
        for index, device in devices.items():
            stats = device.memory_stats() or {}
            if (used := stats.get("bytes_in_use")) is not None:
                found[LogicalDevice("gpu", index, "cuda")] = MemoryPool(
                    used,
                    stats.get("pool_bytes", used),
                    stats.get("peak_bytes_in_use"),
                    stats.get("num_allocs"),
                )
        return found

    def out_of_memory(self, error: BaseException) -> OutOfMemory | None:
        """Return it; the error does not say on which device that was."""
        text = str(error)
        is_ours = isinstance(error, sys.modules["jax"].errors.JaxRuntimeError)
        return OutOfMemory(None, wanted_in(text)) if is_ours and "RESOURCE_EXHAUSTED" in text else None

    def empty_cache(self) -> str:
        if not self.has_gpu():
            return ""
        return "JAX keeps what it took of a GPU until this process ends; %gpus ... --growth takes less."

    def narrow(self, ordinals: Sequence[int]) -> tuple[str, AbstractContextManager[Any] | None]:
        """Set the default device; JAX can't hide the others once CUDA has started."""
        jax: Any = sys.modules["jax"]
        device = LogicalDevice("gpu", ordinals[0])
        if why := self.problem(device):
            return why, None
        undo = ExitStack()
        undo.callback(jax.config.update, "jax_default_device", global_default())
        jax.config.update("jax_default_device", devices_like(device)[device.index])
        return f"its default device is {device}; the others can still be named", undo

    def memory_variables(self, memory: MemorySettings) -> Mapping[str, str]:
        """Return what its GPU client reads when it starts (jaxlib 0.10, `generate_pjrt_gpu_plugin_options`).

        The fraction has two names. JAX refuses to start with both, so the one that is set already is used.
        """
        variables = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} if memory.growth else {}
        if memory.fraction is not None:
            new = "XLA_CLIENT_MEM_FRACTION"
            name = new if new in os.environ else "XLA_PYTHON_CLIENT_MEM_FRACTION"
            variables[name] = f"{math.floor(memory.fraction * 10_000) / 10_000}"  # never more than asked
        return variables


def _is_array(kind: type) -> bool:
    # By the type: for isinstance, jax.Array asks the value for its __class__, which can be anything.
    return issubclass(kind, sys.modules["jax"].Array | sys.modules["jax"].core.Tracer)


def _key(shard: Any) -> tuple[str, int]:
    """Return a key that is the same for arrays that share memory, and for NumPy's views of it."""
    where = "address" if shard.device.platform == "cpu" else str(shard.device)
    return where, shard.data.unsafe_buffer_pointer()


def _check_dtype(array: Any) -> None:
    """Check that JAX has a dtype of NumPy.

    Raises
    ------
    PlacementError
        It would make another dtype of it.

    """
    dtype = sys.modules["jax"].dtypes.canonicalize_dtype(array.dtype)
    if dtype != array.dtype:
        raise PlacementError(
            f"JAX would make {dtype} of {array.dtype}, as jax_enable_x64 is not set: "
            f'convert it yourself, with .astype("{dtype}").'
        )


FRAMEWORK = Jax()
