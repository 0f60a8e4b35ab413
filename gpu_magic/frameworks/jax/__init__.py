"""JAX."""

from __future__ import annotations

from gpu_magic.frameworks.jax.framework import FRAMEWORK

__all__ = ["FRAMEWORK"]
