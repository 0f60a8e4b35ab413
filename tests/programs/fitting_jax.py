"""Predictions of `fit` for JAX's functions."""

import contextlib
import functools
import io
from dataclasses import dataclass

import flax.linen
import jax
import jax.numpy as jnp

import gpu_magic

traced, kept = [], []


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


def keep(value):
    """Do what steps do besides: print, and keep what they have computed."""
    print("SHOWN", value)
    kept.append(value)
    return value


def plain_step(params, x, y):
    value, gradients = jax.value_and_grad(loss)(params, x, y)
    keep(value)
    return gradients


@functools.partial(jax.jit, static_argnames="times", donate_argnums=0)
def jitted_step(params, x, y, times=2):
    gradients = jax.grad(loss)(params, keep(x), y)
    return jax.tree.map(lambda one, change: one - times * change, params, gradients)


class Trainer:
    steps = 0

    def __init__(self):
        self.params, _, _ = arrays()

    def step(self, x, y):
        self.steps += 1
        self.params = plain_step(self.params, x, y)
        return self.params

    @functools.partial(jax.jit, static_argnums=0)
    def jitted(self, x, y):
        return self.step(x, y)


trainer = Trainer()


@functools.partial(jax.tree_util.register_dataclass, data_fields=["params"], meta_fields=[])
@dataclass
class State:
    params: dict


def of_state(state, x, y):
    return State(plain_step(state.params, x, y))


def keeps_loss(params, x, y):
    return keep(loss(params, x, y))


class Net(flax.linen.Module):
    @flax.linen.compact
    def __call__(self, x):
        return flax.linen.Dense(16)(x)


net = Net()


def of_flax(variables, x, y):
    return jax.grad(lambda given: keep(((net.apply(given, x) - y) ** 2).mean()))(variables)


def untouched(how):
    """Return what is predicted, what is left in the program's variables, and what was shown."""
    params, x, y = arrays()
    calls = {
        "plain": (plain_step, params, x, y),
        "jitted": (jitted_step, params, x, y),
        "method": (trainer.step, x, y),
        "jitted method": (trainer.jitted, x, y),
        "gradient": (jax.jit(jax.grad(keeps_loss)), params, x, y),
        "pytree": (of_state, State(params), x, y),
        "flax": (of_flax, net.init(jax.random.key(0), x), x, y),
    }
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        found = gpu_magic.fit(*calls[how])
    tracers = [one for one in jax.tree.leaves(trainer.params) if isinstance(one, jax.core.Tracer)]
    left = [*kept, *tracers, *["steps"] * trainer.steps]
    return {**found.parts, "left": list(map(str, left)), "shown": shown.getvalue()}


def decides(x):
    return x if x.sum() > 0 else -x


def shapes(x):
    return x @ jnp.zeros((3, 3))


def exits(x):
    keep(x)
    raise SystemExit(2)


def writes(x):
    open("log.txt", "a").write(str(x))  # noqa: PTH123, SIM115 - it is what is tested


def returns_nothing(x):
    keep(x + 1)


def refused(how):
    functions = {
        "decides": decides,
        "jitted": jax.jit(decides),
        "shapes": shapes,
        "exits": exits,
        "writes": writes,
        "prints": print,
        "returns nothing": returns_nothing,
    }
    try:
        return str(gpu_magic.fit(functions[how], jnp.zeros(4)))
    except gpu_magic.FitError as error:
        return str(error)
