"""JAX."""

from __future__ import annotations

import math
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementWarning
from gpu_magic.frameworks.base import Framework, Holding
from gpu_magic.selection.target import Place
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gpu_magic.selection.memory import Memory

__all__ = ["FRAMEWORK"]


class Jax(Framework):
    """`jax`, through its backends (JAX 0.10, `xla_bridge._backends`, by platform)."""

    name = "JAX"
    module = "jax"

    def has_gpu(self) -> bool:
        """Tell whether one of its backends is a GPU's."""
        return not {"cuda", "rocm", "gpu"}.isdisjoint(_backends())

    def is_started(self) -> bool:
        return bool(_backends())

    def line_for(self, ordinal: int) -> str:
        return f'jax.config.update("jax_default_device", jax.devices("gpu")[{ordinal}])'

    def problem(self, place: Place) -> str:
        there = _devices(place)
        if place.index in there:
            return ""
        jax: Any = sys.modules["jax"]
        if place.kind == "gpu" and not there:
            return f"JAX {jax.__version__} has no {place.type or 'GPU'} here"
        kind = "cpu" if place.kind == "cpu" else place.type or "cuda"
        return f"JAX has {listed(f'{kind}:{index}' for index in there)}"

    def name_of(self, place: Place) -> str:
        return f"{place.type or place.kind}:{place.index}"

    def scope(self, place: Place) -> AbstractContextManager[Any]:
        is_asked = self.is_started() or (place.index > 0 and not _is_keras_guest())
        device = _devices(place).get(place.index) if is_asked else None
        if device is None:
            return _Waiting(self, place)
        return sys.modules["jax"].default_device(device)  # type: ignore[no-any-return]

    def memory(self, thing: Any) -> Sequence[Holding] | None:
        """Return an array's shards, one for each device; a replicated one is there several times."""
        jax: Any = sys.modules["jax"]
        if not isinstance(thing, jax.Array):
            return None
        if isinstance(thing, jax.core.Tracer) or thing.is_deleted():
            return []
        if jax.dtypes.issubdtype(thing.dtype, jax.dtypes.prng_key):
            return self.memory(jax.random.key_data(thing))
        return [
            Holding(_place(shard.device), shard.data.nbytes, ("JAX", id(thing), shard.device.id))
            for shard in thing.addressable_shards
        ]

    def parts(self, thing: Any) -> Iterable[Any] | None:
        """Return the leaves of a registered pytree: Flax's and Equinox's modules, Optax's states."""
        leaves = sys.modules["jax"].tree_util.tree_leaves(thing)
        return None if len(leaves) == 1 and leaves[0] is thing else leaves

    def narrow(self, ordinals: Sequence[int]) -> tuple[str, AbstractContextManager[Any] | None]:
        """Set the default device; JAX can't hide the others once CUDA has started."""
        jax: Any = sys.modules["jax"]
        place = Place("gpu", ordinals[0])
        if why := self.problem(place):
            return why, None
        undo = _Default(jax.config.jax_default_device)
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


class _Waiting:
    """Gives JAX a platform as its default, which stands for its first device, before it has any device.

    Asking for its devices would start it, and that can take three quarters of the memory of every GPU it
    sees, also for somebody whose Keras has imported it and who will never use it. Another device than the
    first can't be named before JAX has started. Where it lacks the platform, whatever uses it raises.
    """

    def __init__(self, framework: Jax, place: Place) -> None:
        self._framework, self._place = framework, place
        self._was_started = framework.is_started()

    def __enter__(self) -> None:
        jax: Any = sys.modules["jax"]
        self._default = jax.default_device(self._place.kind)
        self._default.__enter__()

    def __exit__(self, *exc_info: object) -> None:
        self._default.__exit__(*exc_info)
        if self._was_started or not self._framework.is_started():
            return
        why = self._framework.problem(self._place)
        if self._place.index and not why:
            why = "only its first device can be named before it starts; run it again, now that it has"
        if why:
            place = self._place
            warnings.warn(
                f"JAX was started by this code and not on {place}: {why}.", PlacementWarning, stacklevel=2
            )


class _Default:
    """Puts the default device back at its exit."""

    def __init__(self, before: Any) -> None:
        self._before = before

    def __enter__(self) -> None: ...

    def __exit__(self, *exc_info: object) -> None:
        sys.modules["jax"].config.update("jax_default_device", self._before)


def _backends() -> dict[str, Any]:
    found: dict[str, Any] = getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", {})
    return found


def _is_keras_guest() -> bool:
    """Tell whether JAX may be here only because Keras imports it, whatever Keras computes with."""
    keras = sys.modules.get("keras")
    config = getattr(keras, "config", None)  # it has none yet while it is being imported
    return keras is not None and (config is None or config.backend() != "jax")


def _devices(place: Place) -> dict[int, Any]:
    """Return this process's devices of a kind; GPUs by the number CUDA gives them (`local_hardware_id`)."""
    try:
        devices = sys.modules["jax"].local_devices(backend=place.type or place.kind)
    except RuntimeError:  # there is no such platform here
        return {}
    return {_number(device, index): device for index, device in enumerate(devices)}


def _number(device: Any, index: int) -> int:
    """Return the number CUDA gives it: not JAX's where `jax_cuda_visible_devices` has left some out."""
    number = getattr(device, "local_hardware_id", None)
    return index if device.platform == "cpu" or number is None or number < 0 else int(number)


def _place(device: Any) -> Place | str:
    if device.platform == "cpu":
        return Place("cpu", device.id)
    return Place("gpu", _number(device, device.id), "cuda") if device.platform == "gpu" else str(device)


FRAMEWORK = Jax()
