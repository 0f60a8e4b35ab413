"""TensorFlow, and Keras on it."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["FRAMEWORK"]


class TensorFlow:
    """`tensorflow`, through its eager context."""

    name = "TensorFlow"

    def is_started(self) -> bool:
        """Tell whether the eager context has its devices: merely entering `tf.device` gives it them.

        `tf.config.list_physical_devices` leaves this False (TensorFlow 2.21, python/eager/context.py).
        """
        return getattr(_context(), "_context_handle", None) is not None

    def has_gpu(self) -> bool:
        """Tell whether a GPU is among the devices that its context has (`_logical_devices`)."""
        devices = getattr(_context(), "_logical_devices", None) or ()
        return any(device.device_type == "GPU" for device in devices)

    def line_for(self, ordinal: int) -> str:
        return f'with tf.device("/GPU:{ordinal}"): ...'


def _context() -> Any:
    return getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)


FRAMEWORK = TensorFlow()
