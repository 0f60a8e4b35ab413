"""The memory that JAX's and Keras's steps are predicted to take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.programs.runner import Runner


def test_jax_s_figures_are_those_of_the_compiled_step(run: Runner) -> None:
    found = run("fitting_jax.parts")
    assert found["parts"] == found["by hand"]
    assert found["parameters"] == "UNKNOWN"
    assert found["traced"] == 1  # it was compiled, and not called


def test_what_a_step_is_given_for_good_is_not_counted_twice(run: Runner) -> None:
    found = run("fitting_jax.donated")
    assert found["donated"] == found["plain"] - found["parameters"]


def test_a_plain_function_of_jax_keeps_python_s_values(run: Runner) -> None:
    assert run("fitting_jax.plain")["arguments"] > 0


def test_a_batch_of_another_size_for_jax(run: Runner) -> None:
    found = run("fitting_jax.another_size")
    assert found["resized"] == found["made so"]
    assert found["batch"] == 64


def test_what_jax_can_not_trace_is_one_line(run: Runner) -> None:
    said = run("fitting_jax.refused")
    assert said.startswith("The step raises TracerBoolConversionError: ")
    assert "\n" not in said


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_keras_by_its_backend(run: Runner, backend: str) -> None:
    found = run.fresh("fitting_keras.step", KERAS_BACKEND=backend, TF_CPP_MIN_LOG_LEVEL="3")
    assert found["peak"] > found["weights"]
    assert found["larger"] > found["peak"]
    assert found["forward"] < found["peak"]
    assert found["changed"] == []


def test_keras_on_tensorflow_says_that_it_can_not(run: Runner) -> None:
    said = run.fresh("fitting_keras.refused", KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3")
    assert said == (
        "Keras on tensorflow runs a step to know its memory: it can be predicted with the backends jax and torch "
        "alone."
    )


def test_keras_says_what_is_missing(run: Runner) -> None:
    found = run.fresh("fitting_keras.missing", KERAS_BACKEND="jax", TF_CPP_MIN_LOG_LEVEL="3")
    assert found == [
        "The model has no optimizer yet: call model.compile(...), or use --eval.",
        "The optimizer is not built yet: optimizer.build(model.trainable_variables).",
        "A Keras model has its own optimizer, loss and precision: model.compile() sets them.",
    ]
