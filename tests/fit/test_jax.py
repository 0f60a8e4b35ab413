"""The memory that JAX's steps are predicted to take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.programs.runner import Runner


def test_the_figures_are_those_of_the_compiled_step(run: Runner) -> None:
    found = run("fit_jax.parts")
    assert found["parts"] == found["by hand"]
    assert found["donated"] == found["parameters"]  # what a step is given for good is not counted twice


def test_a_plain_function_keeps_python_s_values(run: Runner) -> None:
    found = run("fit_jax.plain")
    assert found["resized"] == found["made so"]
    assert found["size"] == 512
    assert "Compiled for the CPU" in found["notes"][0]


def test_no_tracer_is_left_in_the_user_s_objects(run: Runner) -> None:
    found = run("fit_jax.untouched")
    assert all(parts["arguments"] > 0 for parts in found["found"])
    assert found["left"] == ["ArrayImpl", "ArrayImpl"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("decides", "of decides: return x if x.sum() > 0 else -x"),
        ("jitted", "of decides: return x if x.sum() > 0 else -x"),
        ("exits", "The step raises SystemExit: 4, in line "),
    ],
)
def test_what_cannot_be_traced_is_one_line(run: Runner, name: str, said: str) -> None:
    found = run("fit_jax.refused", name)
    assert said in found
    assert "\n" not in found
