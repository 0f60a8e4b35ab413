"""Predictions that are interrupted at any moment: each is, or finishes; the process lives, and all is as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.programs.runner import Runner


@pytest.mark.timeout(600)  # a hundred predictions
@pytest.mark.parametrize(
    ("what", "times", "interrupts"),
    [("fit_model", 150, 1), ("fit_function", 100, 1), ("fit_function", 50, 2), ("fit_swallowing", 10, 1)],
)
def test_an_interrupt_at_any_moment(run: Runner, what: str, times: int, interrupts: int) -> None:
    found = run("fitting_interrupted.anywhere", what, times, interrupts)
    assert found["ended"].keys() <= {"interrupted", "finished"}
    assert found["ended"]["interrupted"] > 0
    assert found["changed"] == []
    assert found["handlers"] is True


def test_users_code_is_interrupted_where_it_is(run: Runner) -> None:
    assert run("fitting_interrupted.in_user_code") == "interrupted"


@pytest.mark.parametrize(("times", "went_on"), [(1, "on"), (2, "")])
def test_in_pytorch_s_code_the_second_interrupt_is_heard(run: Runner, times: int, went_on: str) -> None:
    assert run("fitting_interrupted.in_library", times) == went_on


def test_a_handler_of_the_user_s_is_called(run: Runner) -> None:
    assert run("fitting_interrupted.with_own_handler") == {"peak": True, "seen": True}
