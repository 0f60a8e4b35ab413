"""Guides with JAX and what is built on it, cell by cell."""

import jax
import jax.numpy as jnp

from tests.programs.cells import run_guide


def state():
    return [str(jnp.ones(1).devices()), str(jax.config.jax_default_device)]


def guide(name):
    return run_guide(name, "cpu:2", state)
