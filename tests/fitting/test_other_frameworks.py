"""The memory that JAX's steps are predicted to take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.programs.runner import Runner


def test_jax_s_figures_are_those_of_the_compiled_step(run: Runner) -> None:
    found = run("fitting_jax.parts")
    assert found["parts"] == found["by hand"]
    assert found["parameters"] == "UNKNOWN"
    assert found["traced"] == 0  # it was compiled over copies, and not called


def test_what_a_step_is_given_for_good_is_not_counted_twice(run: Runner) -> None:
    found = run("fitting_jax.donated")
    assert found["donated"] == found["plain"] - found["parameters"]


def test_a_plain_function_of_jax_keeps_python_s_values(run: Runner) -> None:
    assert run("fitting_jax.plain")["arguments"] > 0


def test_a_batch_of_another_size_for_jax(run: Runner) -> None:
    found = run("fitting_jax.another_size")
    assert found["resized"] == found["made so"]
    assert found["batch"] == 64


@pytest.mark.parametrize("how", ["plain", "jitted", "method", "jitted method", "gradient", "pytree", "flax"])
def test_a_function_of_jax_leaves_no_tracers_and_shows_nothing(run: Runner, how: str) -> None:
    found = run("fitting_jax.untouched", how)
    assert found["arguments"] > 0
    assert found["outputs"] > 0
    assert found["left"] == []
    assert found["shown"] == ""


@pytest.mark.parametrize(
    ("how", "said", "where"),
    [
        (
            "decides",
            "The step raises TracerBoolConversionError: ",
            "decides: return x if x.sum() > 0 else -x",
        ),
        ("jitted", "The step raises TracerBoolConversionError: ", "decides: return x if x.sum() > 0 else -x"),
        ("shapes", "The step raises TypeError: ", "shapes: return x @ jnp.zeros((3, 3))"),
        ("exits", "The step raises SystemExit: 2, ", "exits: raise SystemExit(2)"),
        ("writes", "The step can't be followed without being run: it would write to log.txt, ", "writes: "),
    ],
)
def test_what_jax_can_not_trace_is_one_line(run: Runner, how: str, said: str, where: str) -> None:
    found = run("fitting_jax.refused", how)
    assert found.startswith(said)
    assert f" of {where}" in found
    assert "compiled_step" not in found
    assert "\n" not in found


@pytest.mark.parametrize(("how", "name"), [("prints", "print()"), ("returns nothing", "returns_nothing()")])
def test_what_returns_no_array_has_no_memory_in_jax(run: Runner, how: str, name: str) -> None:
    assert run("fitting_jax.refused", how) == (
        f"{name} returns no array, and JAX computes nothing else: have it return what it has computed."
    )
