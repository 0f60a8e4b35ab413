"""Modules that remember their device: they are told where they have been moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.programs.runner import Runner


def test_a_module_and_its_metrics_say_where_they_are(run: Runner) -> None:
    assert run("moving_finalize.there_and_back") == [["pretend:1"] * 3, ["cpu"] * 3]


def test_a_module_within_another_says_where_it_is(run: Runner) -> None:
    assert run("moving_finalize.within_another") == ["pretend:1"] * 3


def test_what_is_tied_stays_tied_where_modules_are_told(run: Runner) -> None:
    assert run("moving_finalize.tied") == {
        "parameters": True,
        "optimizer's": True,
        "list of a metric": True,
        "its tensor": "pretend:1",
        "parameters with PyTorch's new behavior": True,
    }


def test_a_moved_metric_computes_where_it_is_also_after_a_reset(run: Runner) -> None:
    assert run("moving_finalize.metric_in_use") == ["pretend:1", "pretend:1", 3.0]


def test_a_module_that_refuses_to_be_moved_is_not_moved_nor_what_is_beside_it(run: Runner) -> None:
    assert run("moving_finalize.refused") == {
        "error": "Moving to pretend:1 failed, and all is as it was: ValueError: `.to` is not supported for `8-bit` models",
        "remembered": ["cpu", "cpu", "cpu"],
        "devices": ["cpu", "cpu"],
    }


def test_a_module_within_another_is_not_asked_whether_it_refuses(run: Runner) -> None:
    assert run("moving_finalize.refused_within") == "pretend:1"
