"""A move that is interrupted, at any point: the interrupt is raised, and no variable is moved in part."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.programs.runner import Runner


def test_an_interrupt_while_a_move_finishes_is_raised(run: Runner) -> None:
    assert run("moving_interrupted.interrupt_at_the_end") == {
        "raised": "KeyboardInterrupt",
        "devices": ["cpu", "cpu"],
    }


def test_an_interrupt_at_any_line_is_raised_and_nothing_is_torn(run: Runner) -> None:
    found = run("moving_interrupted.interrupt_everywhere")
    assert found["interrupts"] > 100
    assert found["swallowed"] == []
    assert found["torn"] == []


def test_an_interrupt_while_an_error_is_undone_is_raised_after_that(run: Runner) -> None:
    found = run("moving_interrupted.interrupt_while_it_is_undone")
    assert found["interrupts"] > 100
    assert found["swallowed"] == []
    assert found["torn"] == []


def test_an_interrupt_that_is_ignored_stays_ignored(run: Runner) -> None:
    assert run("moving_interrupted.ignored_interrupt") == ["pretend:0", True]
