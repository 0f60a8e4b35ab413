"""What a followed step sets, and draws, is as before; and what other threads draw meanwhile stays drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.programs.runner import Runner


def test_settings_of_the_process_are_put_back(run: Runner) -> None:
    assert run("fitting_settings.set_by_a_step") == []


def test_generators_are_not_advanced(run: Runner) -> None:
    assert run("fitting_settings.drawn_by_a_step") == []


def test_what_a_library_draws_is_put_back(run: Runner) -> None:
    assert run("fitting_settings.drawn_by_a_library") == []


def test_what_another_thread_draws_is_not_drawn_again(run: Runner) -> None:
    found = run("fitting_settings.drawn_by_another_thread")
    assert found["drawn"] > 100
    assert found["twice"] == [0, 0, 0]
