"""Moving and freeing beside variables that hold very much: they are looked at so far, and it is said where not whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.programs.runner import Runner


@pytest.mark.parametrize(
    "kind",
    [
        "tuples of numbers",
        "rows of lists",
        "records",
        "dates",
        "dict by pairs",
        "one list many times",
    ],
)
def test_a_table_of_plain_values_is_not_walked_object_by_object(run: Runner, kind: str) -> None:
    assert run("moving_beside_much.visited", kind) == 1


def test_an_array_among_plain_values_is_found(run: Runner) -> None:
    assert run("moving_beside_much.array_among_plain_values") == [1] * 9


def test_what_belongs_to_a_moved_model_is_found_beside_what_holds_too_much(run: Runner) -> None:
    assert run("moving_beside_much.leftovers") == {
        "old memory": ["x", "y"],
        "split": ["optimizer"],
        "unfinished": ["much", "more"],
    }


def test_what_holds_memory_is_found_beside_what_holds_too_much(run: Runner) -> None:
    assert run("moving_beside_much.freeing") == {
        "held": {"x": 8},
        "dropped": ["Out[2]"],
        "unfinished": ["much", "Out[1]"],
    }


def test_a_variable_is_named_for_which_there_is_no_time(run: Runner) -> None:
    assert run("moving_beside_much.no_time") == ["much"]


def test_what_is_named_is_moved_whole_however_much_it_holds(run: Runner) -> None:
    assert run("moving_beside_much.moved_itself") == "pretend:1"
