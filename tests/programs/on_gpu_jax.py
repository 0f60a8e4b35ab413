"""`on_gpu` with JAX, on four logical CPUs."""

import jax
import jax.numpy as jnp

from gpu_magic import on_gpu
from tests.programs.errors import placement_error


def made():
    """Return where an array is made."""
    return str(jnp.ones(2).devices())


def devices():
    found = {}
    f = jax.jit(lambda x: x + jnp.ones(2))
    with on_gpu("cpu:2"):
        found["array"] = made()
        found["compiled"] = str(f(jnp.ones(2)).devices())
        found["random"] = str(jax.random.normal(jax.random.key(0)).devices())
        with on_gpu("cpu"):
            found["in an inner block"] = made()
    return {**found, "outside": made()}


def refused(device):
    ran = []

    def use():
        with on_gpu(device):
            ran.append(jnp.ones(1))

    return {"error": placement_error(use), "ran": bool(ran)}


def device_objects():
    with on_gpu(jax.devices()[2]):
        return {"device": str(jnp.ones(1).devices())}


def given_device():
    with on_gpu("cpu:2") as device:
        pass
    return [str(device), str(jax.device_put(1.0, device).devices())]
