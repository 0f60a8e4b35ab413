"""A step of JAX. XLA reports the memory of a compiled function before it runs."""

from __future__ import annotations

import copy
import sys
from collections import Counter
from types import MethodType
from typing import Any

from gpu_magic.errors import FitError
from gpu_magic.fit.users_code import Functions, one_line
from gpu_magic.frameworks.jax import FRAMEWORK, has_plugin
from gpu_magic.frameworks.private import private_of

__all__ = ["JaxStep"]


class JaxStep:
    """A call of a function, jitted or plain. It is compiled for the device of its arrays, and does not run.

    It has the attributes and the method of `TorchStep`.
    """

    module = "jax"

    def __init__(self, function: Any, args: Any, kwargs: Any) -> None:
        jax: Any = sys.modules["jax"]
        if FRAMEWORK.is_started() is not True and has_plugin():
            why = (
                "JAX has not started and allocates most of each GPU's memory when it does. Make arrays first."
            )
            raise FitError(why)
        self._function, self._args, self._kwargs = function, args, kwargs
        sizes = [size for size in map(_size, (*args, *kwargs.values())) if size is not None]
        self.size = sizes[-1] if sizes else None  # the batch comes after the parameters
        is_cpu = jax.default_backend() == "cpu"
        self.notes = ("Compiled for the CPU. A GPU's temporary memory can differ.",) if is_cpu else ()
        self.present: Counter[int] = Counter()
        for one in () if is_cpu else jax.tree.leaves((args, kwargs)):
            if isinstance(one, jax.Array) and not one.is_deleted():
                for shard in one.addressable_shards:
                    self.present[private_of(shard.device, "jax:Device.local_hardware_id") or 0] += (
                        shard.data.nbytes
                    )

    def peak(self, size: int | None = None, _until: float | None = None) -> dict[str, int]:
        """Return the bytes of each part of the compiled step, with a batch of `size`."""
        jax: Any = sys.modules["jax"]

        def resized(leaf: Any) -> Any:
            is_array = bool(getattr(leaf, "shape", ()))
            return jax.ShapeDtypeStruct((size, *leaf.shape[1:]), leaf.dtype) if is_array else leaf

        args = self._args
        if size is not None:
            args = tuple(jax.tree.map(resized, one) if _size(one) == self.size else one for one in args)
        leaves, shape = jax.tree.flatten((args, self._kwargs))
        arrays = {at: one for at, one in enumerate(leaves) if hasattr(one, "shape") and hasattr(one, "dtype")}

        def of_arrays(arrays: dict[int, Any]) -> Any:
            values = [arrays.get(at, one) for at, one in enumerate(leaves)]
            args, kwargs = jax.tree.unflatten(shape, values)
            return function(*args, **kwargs)

        with one_line():
            function = Functions(_unshared).copied(self._function)  # the user's variables must keep no tracer
            if hasattr(function, "lower") and not isinstance(function, MethodType):
                lowered = function.lower(*args, **self._kwargs)
            else:
                lowered = jax.jit(of_arrays).lower(arrays)
            compiled = lowered.compile()
            analysis = getattr(compiled, "compiled", compiled).memory_analysis()  # Equinox wraps JAX's object
        if analysis is None:
            raise FitError("XLA does not report the step's memory on this device.")
        return {
            "arguments": analysis.argument_size_in_bytes,
            "outputs": analysis.output_size_in_bytes - analysis.alias_size_in_bytes,
            "temporary": analysis.temp_size_in_bytes + analysis.generated_code_size_in_bytes,
        }


def _unshared(value: Any) -> Any:
    """Return a copy of an object with new containers and the same arrays, which never change."""
    is_theirs = type(value).__module__.partition(".")[0] in ("jax", "jaxlib", "flax")
    if is_theirs or not hasattr(value, "__dict__"):
        return sys.modules["jax"].tree.map(lambda one: one, value)
    new = copy.copy(value)
    for name, one in vars(value).items():
        object.__setattr__(new, name, _unshared(one))
    return new


def _size(value: Any) -> int | None:
    """Return the size of a value's arrays along dimension 0. None if they have no common size."""
    leaves = sys.modules["jax"].tree.leaves(value)
    sizes = {leaf.shape[0] for leaf in leaves if getattr(leaf, "shape", ())}
    return int(sizes.pop()) if len(sizes) == 1 else None
