"""A move that fails, or is interrupted, at any point: no variable has moved, and what was allocated is freed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.programs.runner import Runner

FAILED = {
    "no setter": "AttributeError: property 'x' of 'Odd' object has no setter",
    "its setter raises": "ValueError: not there",
    "it can't be built again": "RuntimeError: no copies",
    "its own to raises": "ValueError: no way",
    "a module refuses": "ValueError: `.to` is not supported for `8-bit` models",
}


@pytest.mark.parametrize("like_cuda", [True, False], ids=["like CUDA", "where tensors are swapped"])
def test_each_step_is_undone_whatever_another_one_raises(run: Runner, like_cuda: bool) -> None:
    found = run("moving_undone.failing", like_cuda)
    for kind, error in FAILED.items():
        said = f"Moving to pretend:0 failed, and all is as it was: {error}"
        is_same = kind != "its own to raises"  # what moved itself was told to go back
        assert found[kind] == [said, is_same, ["cpu"], 0], kind


def test_a_failure_at_any_allocation_changes_nothing(run: Runner) -> None:
    errors, changed, count, *devices = run("moving_undone.failures")
    assert errors == [
        "pretend:1 ran out of memory after some. All is as it was. Move fewer, or see what %gpu_free gives back."
    ]
    assert changed == []
    assert count > 10
    assert devices == [
        "cpu",
        "pretend:1",
        "pretend:1",
    ]  # the tuple that was given, and what has moved at last


@pytest.mark.parametrize("fails", [False, True])
def test_an_interrupt_at_any_line_is_raised_and_nothing_is_torn(run: Runner, fails: bool) -> None:
    count, wrong, is_handler_back = run("moving_undone.interrupted", fails)
    assert count > 100
    assert wrong == []
    assert is_handler_back


def test_an_interrupt_undoes_what_has_moved_and_begins_no_other_copy(run: Runner) -> None:
    assert run("moving_undone.interrupted_once") == [*(["cpu"], 0) * 3, [[], ["pretend:0", "cpu"]]]


def test_an_object_that_interrupts_its_way_back_stops_no_other_one(run: Runner) -> None:
    assert run("moving_undone.interrupted_way_back") == [["cpu"], "cpu"]


def test_an_interrupt_that_is_ignored_stays_ignored(run: Runner) -> None:
    assert run("moving_undone.ignored_interrupt") == ["pretend:0", "pretend:0", True]
