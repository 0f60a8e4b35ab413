"""JAX."""

from __future__ import annotations

import math
import os
import sys
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks.base import Components, Framework, Holding, MemoryPool
from gpu_magic.frameworks.copying import CopyMethod, CopyTransfer
from gpu_magic.selection.target import LogicalDevice
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gpu_magic.frameworks.base import Transfer
    from gpu_magic.selection.memory import Memory

__all__ = ["FRAMEWORK"]

# What it takes as a default device before it has any (JAX 0.10, `_validate_default_device`).
_PLATFORMS = ("cpu", "gpu", "tpu")


class Jax(Framework):
    """`jax`, through its backends (JAX 0.10, `xla_bridge._backends`, by platform)."""

    name = "JAX"
    module = "jax"
    needs = ("Array", "default_device", "local_devices", "tree_util")
    preallocates = True

    def has_gpu(self) -> bool:
        """Tell whether one of its backends is a GPU's."""
        return not {"cuda", "rocm", "gpu"}.isdisjoint(_backends())

    def is_started(self) -> bool:
        return bool(_backends())

    def statement_for(self, ordinal: int) -> str:
        return f'jax.config.update("jax_default_device", jax.devices("gpu")[{ordinal}])'

    def problem(self, place: LogicalDevice) -> str:
        there = _devices(place)
        if place.index in there:
            return ""
        jax: Any = sys.modules["jax"]
        if place.kind == "gpu" and not there:
            return f"JAX {jax.__version__} has no {'GPU' if _platform(place) == 'gpu' else place.type} here"
        kind = "cpu" if place.kind == "cpu" else place.type or "cuda"
        return f"JAX has {listed(f'{kind}:{index}' for index in there)}"

    def name_of(self, place: LogicalDevice) -> str:
        return f"{place.type or place.kind}:{place.index}"

    def raises_itself(self, place: LogicalDevice) -> bool:
        """Tell whether it is left unstarted: then it raises by itself where it lacks the platform."""
        return place.index == 0 and not self.is_started() and _platform(place) in _PLATFORMS

    def scope(self, place: LogicalDevice, is_used: Callable[[], bool]) -> AbstractContextManager[Any]:
        """Name a device, or its platform where it has not started: that stands for its first device.

        Asking for its devices starts it, and that can take three quarters of the memory of every GPU it sees,
        also for somebody whose Keras has imported it and who will never use it.
        """
        if self.raises_itself(place):
            return _Default(_platform(place))
        if _platform(place) not in _PLATFORMS:
            return _Default(_AbsentDevice(place, f"it has no {place.type}."))
        if self.is_started() or is_used():
            device = _devices(place).get(place.index)
            return _Default(device or _AbsentDevice(place, f"{self.problem(place)}."))
        why = "only its first device can be named before it starts. It has started now: run it again."
        return _Default(_AbsentDevice(place, why))

    def is_array(self, kind: type) -> bool:
        # Not isinstance: jax.Array's own answer goes by the value's __class__, which anything can claim.
        return _is_array(kind)

    def holdings(self, thing: Any) -> Sequence[Holding]:
        """Return an array's shards, one for each device; a replicated one is there several times."""
        jax: Any = sys.modules["jax"]
        if isinstance(thing, jax.core.Tracer) or thing.is_deleted():
            return []
        if jax.dtypes.issubdtype(thing.dtype, jax.dtypes.prng_key):
            return self.holdings(jax.random.key_data(thing))
        return [
            Holding(_place(shard.device), shard.data.nbytes, _key(shard))
            for shard in thing.addressable_shards
        ]

    def components(self, thing: Any, to: LogicalDevice | None = None) -> Components | None:
        """Return the children of a registered pytree: Flax's and Equinox's modules, Optax's states."""
        del to
        tree = sys.modules["jax"].tree_util
        children, shape = tree.tree_flatten(thing, is_leaf=lambda one: one is not thing)
        if len(children) == 1 and children[0] is thing:
            return None
        return Components(children, lambda _, new: shape.unflatten(new), is_kept=False)

    def transfer(self, place: LogicalDevice) -> Transfer:
        jax: Any = sys.modules["jax"]

        def origin(array: Any) -> str:
            if not _is_array(type(array)):
                if (there := jax.dtypes.canonicalize_dtype(array.dtype)) != array.dtype:
                    raise PlacementError(
                        f"JAX would make {there} of {array.dtype}, as jax_enable_x64 is not set: "
                        f'convert it yourself, with .astype("{there}").'
                    )
                return "NumPy"
            if isinstance(array, jax.core.Tracer) or array.is_deleted():
                why = (
                    "is traced" if isinstance(array, jax.core.Tracer) else "was donated, and deleted by that"
                )
                raise PlacementError(f"A JAX array of shape {array.shape} {why}: it has no data to move.")
            where = {str(_place(device)) for device in array.devices()}
            return "" if where == {str(_place(_devices(place)[place.index]))} else listed(sorted(where))

        def copy(array: Any) -> Any:
            return jax.device_put(array, _devices(place)[place.index]).block_until_ready()

        return CopyTransfer(CopyMethod(origin, lambda array: int(array.nbytes), copy))

    def free_bytes(self, place: LogicalDevice) -> int | None:
        """Ask its own pool, which has taken its part of the GPU; none is kept of the CPU."""
        if place.kind == "cpu" or not self.is_started():
            return None
        stats = _devices(place)[place.index].memory_stats() or {}
        if "bytes_limit" not in stats:
            return None
        return int(stats["bytes_limit"] - stats["bytes_in_use"])

    def pools(self) -> Mapping[LogicalDevice, MemoryPool]:
        devices = _devices(LogicalDevice("gpu", 0)) if self.has_gpu() else {}
        stats = {index: device.memory_stats() or {} for index, device in devices.items()}
        return {
            LogicalDevice("gpu", index, "cuda"): MemoryPool(
                one["bytes_in_use"], one.get("pool_bytes", one["bytes_in_use"])
            )
            for index, one in stats.items()
            if "bytes_in_use" in one
        }

    def empty_cache(self) -> str:
        if not self.has_gpu():
            return ""
        return "JAX keeps what it took of a GPU until the kernel ends; %gpus ... --growth takes less."

    def narrow(self, ordinals: Sequence[int]) -> tuple[str, AbstractContextManager[Any] | None]:
        """Set the default device; JAX can't hide the others once CUDA has started."""
        jax: Any = sys.modules["jax"]
        place = LogicalDevice("gpu", ordinals[0])
        if why := self.problem(place):
            return why, None
        undo = _Undo(_global_default())
        jax.config.update("jax_default_device", _devices(place)[place.index])
        return f"its default device is {place}; the others can still be named", undo

    def memory_variables(self, memory: Memory) -> Mapping[str, str]:
        """Return what its GPU client reads when it is made (jaxlib 0.10, `generate_pjrt_gpu_plugin_options`).

        It refuses to start with both names of the fraction, so the one that is set already is taken.
        """
        said = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} if memory.growth else {}
        if memory.fraction is not None:
            new = "XLA_CLIENT_MEM_FRACTION"
            name = new if new in os.environ else "XLA_PYTHON_CLIENT_MEM_FRACTION"
            said[name] = f"{math.floor(memory.fraction * 10_000) / 10_000}"  # never more than asked
        return said


class _Default:
    """`jax.default_device`, except that `jax.config.update` within the block ends with it as well."""

    def __init__(self, device: Any) -> None:
        self._scope = sys.modules["jax"].default_device(device)

    def __enter__(self) -> None:
        self._before = _global_default()
        self._scope.__enter__()

    def __exit__(self, *exc_info: object) -> None:
        self._scope.__exit__(*exc_info)
        if _global_default() is not self._before:
            sys.modules["jax"].config.update("jax_default_device", self._before)


class _AbsentDevice:
    """Stands for a device that JAX can't use: whatever computes on it raises.

    JAX takes any object whose type is called a device (JAX 0.10, `_validate_default_device`), and looks at it
    when it makes the first array.
    """

    def __init__(self, place: LogicalDevice, why: str) -> None:
        self.__dict__["_why"] = f"This is to run on {place}, and JAX could not: {why}"
        self.__dict__["_place"] = place

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _devices(self._place)  # starts it: the code uses it
        raise PlacementError(self._why)


class _Undo:
    """Puts the default device of all threads back at its exit."""

    def __init__(self, before: Any) -> None:
        self._before = before

    def __enter__(self) -> None: ...

    def __exit__(self, *exc_info: object) -> None:
        sys.modules["jax"].config.update("jax_default_device", self._before)


def _global_default() -> Any:
    """Return the default device of all threads (JAX 0.10, `State.get_global`), as far as it tells."""
    state = getattr(sys.modules.get("jax._src.config"), "default_device", None)
    ask = getattr(state, "get_global", None)
    return ask() if ask else None


def _platform(place: LogicalDevice) -> str:
    """Return what JAX calls the kind of device: "gpu" for whichever is here, CUDA's or ROCm's."""
    return {"": place.kind, "cuda": "gpu"}.get(place.type, place.type)


def _backends() -> dict[str, Any]:
    found: dict[str, Any] = getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", {})
    return found


def _devices(place: LogicalDevice) -> dict[int, Any]:
    """Return this process's devices of a kind; GPUs by the number CUDA gives them (`local_hardware_id`)."""
    try:
        devices = sys.modules["jax"].local_devices(backend=_platform(place))
    except RuntimeError:  # there is no such platform here
        return {}
    return {_number(device, index): device for index, device in enumerate(devices)}


def _number(device: Any, index: int) -> int:
    """Return the number CUDA gives it: not JAX's where `jax_cuda_visible_devices` has left some out."""
    number = getattr(device, "local_hardware_id", None)
    return index if device.platform == "cpu" or number is None or number < 0 else int(number)


def _is_array(kind: type) -> bool:
    return issubclass(kind, sys.modules["jax"].Array | sys.modules["jax"].core.Tracer)


def _key(shard: Any) -> tuple[str, int]:
    """Return what is the same for arrays that share memory: NumPy's views of it, too."""
    where = "address" if shard.device.platform == "cpu" else str(shard.device)
    return where, shard.data.unsafe_buffer_pointer()


def _place(device: Any) -> LogicalDevice | str:
    if device.platform == "cpu":
        return LogicalDevice("cpu", device.id)
    return (
        LogicalDevice("gpu", _number(device, device.id), "cuda") if device.platform == "gpu" else str(device)
    )


FRAMEWORK = Jax()
