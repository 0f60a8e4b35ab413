"""Keras 3, which uses the default device of TensorFlow and JAX, but not of PyTorch."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from gpu_magic.frameworks.base import Components, Framework
from gpu_magic.frameworks.pytorch import FRAMEWORK as PYTORCH

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from gpu_magic.frameworks.target import LogicalDevice

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

    def problem(self, device: LogicalDevice) -> str:
        backend = self.backend()
        if device.kind == "gpu" and backend not in ("tensorflow", "jax", "torch"):
            return f"Keras runs on its {backend} backend, which has no GPU"
        return ""  # the backend reports other problems

    def name_of(self, device: LogicalDevice) -> str:
        return f"{device.type or device.kind}:{device.index}"

    def own_device(self, device: LogicalDevice) -> Any:
        """Return the name of a device for `keras.device`, on each backend."""
        is_torch = self.backend() == "torch"
        return PYTORCH.name_of(device) if is_torch else f"{device.kind}:{device.index}"

    def scope(self, device: LogicalDevice, is_used: Callable[[], bool]) -> AbstractContextManager[Any]:
        """On PyTorch, set Keras's device, because Keras 3.15 does not use PyTorch's default device."""
        if self.backend() != "torch":
            return contextlib.nullcontext()
        return sys.modules["keras"].device(PYTORCH.name_of(device))  # type: ignore[no-any-return]

    def components(self, obj: Any) -> Components | None:
        keras: Any = sys.modules["keras"]
        if issubclass(type(obj), keras.Variable):
            return Components([obj.value])
        if issubclass(type(obj), self._kinds):
            inner = [*(getattr(obj, "metrics", None) or []), getattr(obj, "optimizer", None)]
            return Components([*obj.variables, *inner])
        return None

    def unmovable(self, kind: type) -> str:
        """Refuse all objects with variables, because a variable returns to its own device when used."""
        if not issubclass(kind, (sys.modules["keras"].Variable, *self._kinds)):
            return ""
        way = "create it again in a cell with %%on_gpu"
        if issubclass(kind, sys.modules["keras"].Layer):
            way += ", then new.set_weights(old.get_weights())"
        return f"Keras cannot move its own objects ({kind.__name__}): {way}."

    @property
    def _kinds(self) -> tuple[type, ...]:
        keras: Any = sys.modules["keras"]
        return keras.Layer, keras.optimizers.Optimizer, keras.metrics.Metric

    def narrow(self, ordinals: Sequence[int]) -> tuple[str, AbstractContextManager[Any] | None]:
        """Do nothing, because Keras uses the devices of its backend."""
        return f"Keras follows {self.backend()}", None


FRAMEWORK = Keras()
