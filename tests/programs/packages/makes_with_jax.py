"""What `hides_jax` is made with."""

import jax


def make():
    return jax.numpy.ones(1)
