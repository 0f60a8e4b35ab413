"""Predictions of `fit` for JAX's functions."""

import jax
import jax.numpy as jnp

import gpu_magic

traced = []


def arrays(size=64):
    params = {"w": jnp.zeros((256, 1024)), "v": jnp.zeros((1024, 16))}
    return params, jnp.zeros((size, 256)), jnp.zeros((size, 16))


def loss(params, x, y, kind="square"):
    error = jnp.tanh(x @ params["w"]) @ params["v"] - y
    return (error**2).mean() if kind == "square" else jnp.abs(error).mean()


def update(params, x, y):
    traced.append(1)
    gradients = jax.grad(loss)(params, x, y)
    return jax.tree.map(lambda one, change: one - 0.1 * change, params, gradients)


def parts():
    given = arrays()
    found = gpu_magic.fit(jax.jit(update), *given)
    count = len(traced)
    by_hand = jax.jit(update).lower(*given).compile().memory_analysis()
    return {
        "parts": found.parts,
        "parameters": "UNKNOWN" if found.parameters is gpu_magic.UNKNOWN else found.parameters,
        "traced": count,
        "by hand": {
            "arguments": by_hand.argument_size_in_bytes,
            "outputs": by_hand.output_size_in_bytes,
            "temporary": by_hand.temp_size_in_bytes + by_hand.generated_code_size_in_bytes,
        },
    }


def donated():
    given = arrays()
    gives = gpu_magic.fit(jax.jit(update, donate_argnums=0), *given)
    keeps = gpu_magic.fit(jax.jit(update), *given)
    small = ("arguments", "outputs")
    return {
        "donated": sum(gives.parts[name] for name in small),
        "plain": sum(keeps.parts[name] for name in small),
        "parameters": sum(leaf.nbytes for leaf in jax.tree.leaves(given[0])),
    }


def plain():
    return gpu_magic.fit(loss, *arrays(), "absolute").parts


def another_size():
    found = gpu_magic.fit(loss, *arrays(64), batch_size=512)
    return {
        "resized": found.parts,
        "made so": gpu_magic.fit(loss, *arrays(512)).parts,
        "batch": gpu_magic.fit(loss, *arrays(64)).batch_size,
    }


def refused():
    def decides(x):
        return x if x.sum() > 0 else -x

    try:
        return str(gpu_magic.fit(decides, jnp.zeros(4)))
    except gpu_magic.FitError as error:
        return str(error)
