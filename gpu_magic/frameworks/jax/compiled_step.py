"""Predicts the memory of a step of JAX's: XLA says what a compiled function takes, before it is run."""

from __future__ import annotations

import sys
from types import MethodType
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import FitError
from gpu_magic.frameworks.jax.copied import shadow
from gpu_magic.frameworks.jax.devices import backends, has_plugin, logical_device
from gpu_magic.frameworks.prediction import (
    FunctionCall,
    NotFollowed,
    Predictor,
    StepMemory,
    name_of,
)
from gpu_magic.frameworks.shadow.place import described, place_of
from gpu_magic.frameworks.shadow.refusals import refusing
from gpu_magic.selection.target import LogicalDevice

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CompiledStep"]

_PLUMBING = ("jax/", "jaxlib/", "flax/", "equinox/")


class CompiledStep(Predictor):
    """A call of a function, jitted or plain: compiled for the device that its arrays are on, and not run.

    Python's values among the arguments of a plain function stay what they are, as when it is called.

    Parameters
    ----------
    call
        The call.

    Raises
    ------
    FitError
        JAX has not started, and starting it takes memory of GPUs.

    """

    def __init__(self, call: FunctionCall) -> None:
        if not backends() and has_plugin():
            raise FitError(
                "JAX has not started, and takes most of each GPU's memory when it does: make arrays first."
            )
        self._call = call

    @property
    def batch_size(self) -> int | None:
        """Of the last arguments that share a dimension 0: parameters stand before a batch."""
        sizes = [_size(value) for value in (*self._call.args, *self._call.kwargs.values())]
        return sizes[-1] if sizes else None

    def predict(self, batch_size: int | None = None) -> StepMemory:
        jax: Any = sys.modules["jax"]
        args, kwargs = self._resized(batch_size)
        refused: BaseException | None = None
        try:
            with refusing() as refusals:
                try:
                    lowered = _lowered(self._call.function, args, kwargs)
                finally:
                    refused = refusals.take()
            if refused is not None:
                raise refused  # noqa: TRY301 - the function has taken it
            _check_returned(lowered, self._call)
            compiled = lowered.compile()
            analysis = getattr(compiled, "compiled", compiled).memory_analysis()  # Equinox's holds JAX's
        except (FitError, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever the user's function raises: SystemExit, too
            why = refused or error
            where = place_of(why.__traceback__, _PLUMBING)
            if isinstance(why, NotFollowed):
                raise FitError(f"The step can't be followed without being run: {why}{where}") from None
            raise FitError(f"The step raises {described(error)}{where}") from None
        if analysis is None:
            raise FitError("XLA does not say how much memory the step takes on this device.")
        parts = {
            "arguments": analysis.argument_size_in_bytes,
            "outputs": analysis.output_size_in_bytes - analysis.alias_size_in_bytes,
            "temporary": analysis.temp_size_in_bytes + analysis.generated_code_size_in_bytes,
        }
        platform = jax.default_backend()
        note = f"Compiled for the {platform.upper()}: a GPU's temporary memory can differ."
        return StepMemory(parts, self._present(), (note,) if platform == "cpu" else ())

    def _resized(self, size: int | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments, those of the batch's size with another one."""
        call, now = self._call, self.batch_size
        if size is None or now is None:
            return call.args, dict(call.kwargs)
        jax: Any = sys.modules["jax"]

        def of_size(leaf: Any) -> Any:
            return jax.ShapeDtypeStruct((size, *leaf.shape[1:]), leaf.dtype) if _has_rows(leaf) else leaf

        def changed(value: Any) -> Any:
            return jax.tree.map(of_size, value) if _size(value) == now else value

        return tuple(map(changed, call.args)), {name: changed(value) for name, value in call.kwargs.items()}

    def _present(self) -> dict[LogicalDevice, int]:
        jax: Any = sys.modules["jax"]
        found: dict[LogicalDevice, int] = {}
        arrays = {
            id(leaf): leaf
            for leaf in jax.tree.leaves((self._call.args, dict(self._call.kwargs)))
            if isinstance(leaf, jax.Array) and not leaf.is_deleted()
        }
        for array in arrays.values():
            for shard in array.addressable_shards:
                device = logical_device(shard.device)
                if isinstance(device, LogicalDevice) and device.kind == "gpu":
                    found[device] = found.get(device, 0) + shard.data.nbytes
        return found


def _check_returned(lowered: Any, call: FunctionCall) -> None:
    """Raise FitError where a call returns no array: JAX leaves out all that leads to none."""
    returned = getattr(lowered, "out_info", lowered)
    if not sys.modules["jax"].tree.leaves(returned):
        raise FitError(
            f"{name_of(call)} returns no array, and JAX computes nothing else: have it return what it has "
            "computed."
        )


def _lowered(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Trace a copy of a function, which prints nothing and leaves no tracer in the user's variables."""
    jax: Any = sys.modules["jax"]
    copies = shadow()
    function = copies.copy(function)
    if hasattr(function, "lower") and not isinstance(function, MethodType):
        return function.lower(*args, **kwargs)
    leaves, shape = jax.tree.flatten((args, kwargs))
    places = [place for place, leaf in enumerate(leaves) if hasattr(leaf, "shape") and hasattr(leaf, "dtype")]
    leaves = [leaf if place in places else copies.copy(leaf) for place, leaf in enumerate(leaves)]

    def over_arrays(*arrays: Any) -> Any:
        filled = list(leaves)
        for place, array in zip(places, arrays, strict=True):
            filled[place] = array
        given, named = jax.tree.unflatten(shape, filled)
        return function(*given, **named)

    over_arrays.__name__ = getattr(function, "__name__", over_arrays.__name__)
    over_arrays.__wrapped__ = function  # type: ignore[attr-defined] # JAX's errors say where that one is
    return jax.jit(over_arrays).lower(*(leaves[place] for place in places))


def _has_rows(leaf: Any) -> bool:
    return bool(getattr(leaf, "shape", ()))


def _size(value: Any) -> int | None:
    """Return the size of all of a value's arrays along dimension 0; None where they have no common one."""
    leaves = sys.modules["jax"].tree.leaves(value)
    sizes = {leaf.shape[0] for leaf in leaves if _has_rows(leaf)}
    return int(sizes.pop()) if len(sizes) == 1 else None
