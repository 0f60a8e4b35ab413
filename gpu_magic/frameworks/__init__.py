"""How each library is told: one file each, the same few verbs.

A framework is touched only when `sys.modules` holds it. None is ever imported by gpu_magic.
"""

from __future__ import annotations

from gpu_magic.frameworks.base import Framework
from gpu_magic.frameworks.cupy import CuPy
from gpu_magic.frameworks.jax import Jax
from gpu_magic.frameworks.pytorch import PyTorch
from gpu_magic.frameworks.tensorflow import TensorFlow

__all__ = ["FRAMEWORKS", "Framework", "imported", "started"]

FRAMEWORKS: tuple[Framework, ...] = (PyTorch(), TensorFlow(), Jax(), CuPy())


def imported() -> list[Framework]:
    """Return the frameworks that this process has imported."""
    return [framework for framework in FRAMEWORKS if framework.is_imported()]


def started() -> list[str]:
    """Name those that say of themselves that they have started their GPU side."""
    return [framework.name for framework in imported() if framework.is_started()]
