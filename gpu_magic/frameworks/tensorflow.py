"""TensorFlow, and Keras on it."""

from __future__ import annotations

import sys

__all__ = ["FRAMEWORK"]


class TensorFlow:
    """`tensorflow`, through its eager context."""

    name = "TensorFlow"

    def has_gpu(self) -> bool:
        """Tell whether a GPU is among its context's devices (TensorFlow 2.21, python/eager/context.py).

        The context has none until it is initialised, which merely entering `tf.device` does.
        """
        context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
        devices = getattr(context, "_logical_devices", None) or ()
        return any(device.device_type == "GPU" for device in devices)

    def line_for(self, ordinal: int) -> str:
        return f'with tf.device("/GPU:{ordinal}"): ...'


FRAMEWORK = TensorFlow()
