"""`on_gpu` around CuPy, where JAX is imported and has not started."""

import sys

import cupy
import jax  # noqa: F401 - it is to be imported

from gpu_magic import on_gpu


def first_gpu():
    with on_gpu("cuda:0"):  # which does not name it
        return {
            "CuPy": cupy.ones(1).device.id,
            "JAX": sys.modules["jax"].config.jax_default_device,
        }
