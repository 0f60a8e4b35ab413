"""Errors that hold memory, as they keep the local variables of functions: what is said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.programs.runner import Runner


def test_a_saved_error_holds_the_variables_of_its_functions(run: Runner) -> None:
    assert run("moving_saved_errors.held") == {
        "of a function": {"cpu": 8},
        "that led to it": {"cpu": 12},
        "the user's own": {"cpu": 28},
        "in a group": {"cpu": 28},
        "in a list": {"cpu": 16},
    }


def test_the_error_of_a_cell_does_not_hold_the_user_s_variables(run: Runner) -> None:
    assert run("moving_saved_errors.of_a_cell") == {}
