"""Frameworks that return before they have computed, and blocks that are measured."""

import gpu_magic


def jax():
    import jax
    import jax.numpy as jnp

    long = jax.jit(lambda x: jax.lax.fori_loop(0, 60, lambda _, x: jnp.tanh(x @ x), x))
    x = jnp.ones((800, 800))
    long(x).block_until_ready()
    with gpu_magic.gpu_time():
        found = long(x)
    return found.is_ready()


def tensorflow():
    import time

    import tensorflow as tf

    tf.config.experimental.set_synchronous_execution(False)
    done = []
    with gpu_magic.gpu_time():
        tf.py_function(lambda: (time.sleep(0.5), done.append(1))[0], [], [])
    return bool(done)
