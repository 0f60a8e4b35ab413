"""Predictions of `fit` for JAX's functions."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import gpu_magic
from tests.programs.runner import ELSEWHERE

if TYPE_CHECKING:
    from tests.programs.runner import Runner

if ELSEWHERE:
    import jax
    import jax.numpy as jnp


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
    """The figures are those of the compiled step; what a step is given for good is not counted twice."""
    given = arrays()
    found = gpu_magic.fit(jax.jit(update), *given)
    by_hand = jax.jit(update).lower(*given).compile().memory_analysis()
    gives = gpu_magic.fit(jax.jit(update, donate_argnums=0), *given)
    arguments, outputs = by_hand.argument_size_in_bytes, by_hand.output_size_in_bytes
    temporary = by_hand.temp_size_in_bytes + by_hand.generated_code_size_in_bytes
    expected = {"arguments": arguments, "outputs": outputs, "temporary": temporary}
    donated = found.parts["outputs"] - gives.parts["outputs"]
    return [[found.parts, donated], [expected, sum(leaf.nbytes for leaf in jax.tree.leaves(given[0]))]]


def plain():
    """A function that is not jitted, with a value of Python's, for two sizes."""
    resized = gpu_magic.fit(loss, *arrays(64), "absolute", batch_size=512)
    made = gpu_magic.fit(loss, *arrays(512), "absolute")
    notes = "Compiled for the CPU. A GPU's temporary memory can differ."
    return [[resized.parts, made.batch_size, *made.notes], [made.parts, 512, notes]]


if ELSEWHERE:

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
    """No tracer is left in the object of a method."""
    trainer = Trainer()
    params, x, y = arrays()
    calls = (trainer.step, x, y), (trainer.jitted, x, y), (jitted, params, x, y, 3)
    found = [gpu_magic.fit(*call).parts for call in calls]
    left = [type(one).__name__ for one in jax.tree.leaves((trainer.params, trainer.steps))]
    return [[left, all(one["arguments"] for one in found)], [["ArrayImpl"] * 2, True]]


def figures():
    """Return what is predicted and what it is to be, by what it is about."""
    return {one.__name__: one() for one in (parts, plain, untouched)}


def decides(x):
    return x if x.sum() > 0 else -x


def refused():
    told = []
    for call in (decides, jax.jit(decides), lambda x: exit(x.shape[0])):  # noqa: PLR1722
        try:
            gpu_magic.fit(call, jnp.zeros(4))
        except gpu_magic.FitError as error:
            told.append(str(error))
    return told


def test_what_is_predicted_is_what_it_is_to_be(run: Runner) -> None:
    for about, (found, expected) in run(figures).items():
        assert found == expected, about


def test_a_step_that_cannot_be_traced_is_one_line(run: Runner) -> None:
    *decides, exits = run(refused)
    assert {one.rpartition(" of ")[2] for one in decides} == {"decides: return x if x.sum() > 0 else -x"}
    assert exits.startswith("The step raises SystemExit: 4, in line ")
    assert "\n" not in "".join([*decides, exits])
