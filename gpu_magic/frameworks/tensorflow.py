"""TensorFlow, and Keras on it."""

from __future__ import annotations

import sys

__all__ = ["FRAMEWORK"]


class TensorFlow:
    """`tensorflow`, through its eager context."""

    name = "TensorFlow"

    def is_started(self) -> bool:
        """Tell whether the eager context has its devices: merely entering `tf.device` gives it them.

        `tf.config.list_physical_devices` leaves this False (TensorFlow 2.21, python/eager/context.py).
        """
        module = sys.modules.get("tensorflow.python.eager.context")
        context = getattr(module, "_context", None)
        return context is not None and getattr(context, "_context_handle", None) is not None

    def line_for(self, ordinal: int) -> str:
        return f'with tf.device("/GPU:{ordinal}"): ...'


FRAMEWORK = TensorFlow()
