"""TensorFlow."""

from __future__ import annotations

from gpu_magic.frameworks.tensorflow.framework import FRAMEWORK

__all__ = ["FRAMEWORK"]
