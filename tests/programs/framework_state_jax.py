"""What we ask of JAX."""

import sys

import jax

from gpu_magic.frameworks import started


def gpu_among_its_devices():
    jax.devices()
    sys.modules["jax._src.xla_bridge"]._backends["cuda"] = None  # as JAX writes it
    return list(started())
