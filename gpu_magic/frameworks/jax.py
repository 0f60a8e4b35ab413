"""JAX."""

from __future__ import annotations

import sys

__all__ = ["FRAMEWORK"]


class Jax:
    """`jax`, through its backends."""

    name = "JAX"

    def has_gpu(self) -> bool:
        """Tell whether one of its backends is a GPU's (JAX 0.10, `xla_bridge._backends`, by platform)."""
        backends = getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", {})
        return not {"cuda", "rocm", "gpu"}.isdisjoint(backends)

    def line_for(self, ordinal: int) -> str:
        return f'jax.config.update("jax_default_device", jax.devices("gpu")[{ordinal}])'


FRAMEWORK = Jax()
