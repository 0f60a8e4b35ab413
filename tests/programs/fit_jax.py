"""Predictions of `fit` for JAX's functions."""

import functools

import jax
import jax.numpy as jnp

import gpu_magic


def arrays(size=64):
    params = {"w": jnp.zeros((256, 1024)), "v": jnp.zeros((1024, 16))}
    return params, jnp.zeros((size, 256)), jnp.zeros((size, 16))


def loss(params, x, y, kind="square"):
    error = jnp.tanh(x @ params["w"]) @ params["v"] - y
    return (error**2).mean() if kind == "square" else jnp.abs(error).mean()


def update(params, x, y):
    gradients = jax.grad(loss)(params, x, y)
    return jax.tree.map(lambda one, change: one - 0.1 * change, params, gradients)


def parts():
    given = arrays()
    found = gpu_magic.fit(jax.jit(update), *given)
    by_hand = jax.jit(update).lower(*given).compile().memory_analysis()
    gives = gpu_magic.fit(jax.jit(update, donate_argnums=0), *given)
    return {
        "parts": found.parts,
        "by hand": {
            "arguments": by_hand.argument_size_in_bytes,
            "outputs": by_hand.output_size_in_bytes,
            "temporary": by_hand.temp_size_in_bytes + by_hand.generated_code_size_in_bytes,
        },
        "donated": found.parts["outputs"] - gives.parts["outputs"],
        "parameters": sum(leaf.nbytes for leaf in jax.tree.leaves(given[0])),
    }


def plain():
    """A function that is not jitted, with a value of Python's, for two sizes."""
    resized = gpu_magic.fit(loss, *arrays(64), "absolute", batch_size=512)
    made = gpu_magic.fit(loss, *arrays(512), "absolute")
    return {"resized": resized.parts, "made so": made.parts, "size": made.batch_size, "notes": made.notes}


@functools.partial(jax.jit, static_argnames="times", donate_argnums=0)
def jitted(params, x, y, times=2):
    return jax.tree.map(lambda one, change: one - times * change, params, jax.grad(loss)(params, x, y))


class Trainer:
    def __init__(self):
        self.params, self.steps = arrays()[0], []

    def step(self, x, y):
        self.params = update(self.params, x, y)
        self.steps.append(x)
        return self.params

    @functools.partial(jax.jit, static_argnums=0)
    def jitted(self, x, y):
        return update(self.params, x, y)


def untouched():
    """Return whether a method leaves tracers in its object."""
    trainer = Trainer()
    params, x, y = arrays()
    calls = (trainer.step, x, y), (trainer.jitted, x, y), (jitted, params, x, y, 3)
    found = [gpu_magic.fit(*call).parts for call in calls]
    left = [type(one).__name__ for one in jax.tree.leaves((trainer.params, trainer.steps))]
    return {"found": found, "left": left}


def decides(x):
    return x if x.sum() > 0 else -x


def refused(name):
    calls = {"decides": decides, "jitted": jax.jit(decides), "exits": lambda x: exit(x.shape[0])}  # noqa: PLR1722
    try:
        return str(gpu_magic.fit(calls[name], jnp.zeros(4)))
    except gpu_magic.FitError as error:
        return str(error)
