"""Keras 3: on TensorFlow and JAX it takes their device; on PyTorch it has one of its own."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from gpu_magic.frameworks.base import Components, Framework

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from gpu_magic.selection.target import LogicalDevice

__all__ = ["FRAMEWORK"]


class Keras(Framework):
    """`keras`, on its backend."""

    name = "Keras"
    module = "keras"
    needs = ("Layer", "Variable", "config", "device")

    def backend(self) -> str:
        """Return "tensorflow", "jax", "torch", "numpy" or "openvino"."""
        return str(sys.modules["keras"].config.backend())

    def statement_for(self, ordinal: int) -> str:
        return f'with keras.device("gpu:{ordinal}"): ...'

    def problem(self, place: LogicalDevice) -> str:
        backend = self.backend()
        if place.kind == "gpu" and backend not in ("tensorflow", "jax", "torch"):
            return f"Keras runs on its {backend} backend, which has no GPU"
        return ""  # else its backend says so

    def name_of(self, place: LogicalDevice) -> str:
        return f"{place.type or place.kind}:{place.index}"

    def scope(self, place: LogicalDevice, is_used: Callable[[], bool]) -> AbstractContextManager[Any]:
        """On PyTorch, name the device to it: Keras 3.15 does not ask for PyTorch's default device."""
        del is_used
        if self.backend() != "torch":
            return contextlib.nullcontext()
        from gpu_magic.frameworks.pytorch.framework import FRAMEWORK as PYTORCH

        return sys.modules["keras"].device(PYTORCH.name_of(place))  # type: ignore[no-any-return]

    def components(self, thing: Any, to: LogicalDevice | None = None) -> Components | None:
        del to
        keras: Any = sys.modules["keras"]
        if issubclass(type(thing), keras.Variable):
            return Components([thing.value])
        if issubclass(type(thing), self._kinds):
            inner = [*(getattr(thing, "metrics", None) or []), getattr(thing, "optimizer", None)]
            return Components([*thing.variables, *inner])
        return None

    def unmovable(self, kind: type) -> str:
        """Its variables keep to a device of their own; PyTorch's they go back to whenever they are used."""
        if not issubclass(kind, (sys.modules["keras"].Variable, *self._kinds)):
            return ""
        way = "make it anew in a cell with %%on_gpu"
        if issubclass(kind, sys.modules["keras"].Layer):
            way += ", then new.set_weights(old.get_weights())"
        return f"Keras can't move what it has made ({kind.__name__}): {way}."

    @property
    def _kinds(self) -> tuple[type, ...]:
        keras: Any = sys.modules["keras"]
        return keras.Layer, keras.optimizers.Optimizer, keras.metrics.Metric

    def narrow(self, ordinals: Sequence[int]) -> tuple[str, AbstractContextManager[Any] | None]:
        """Leave it to its backend."""
        del ordinals
        return f"it follows {self.backend()}", None


FRAMEWORK = Keras()
