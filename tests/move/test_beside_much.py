"""Moving and freeing beside variables that hold very much: they are looked at so far, and it is said where not whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.programs.runner import Runner


def test_what_belongs_to_a_moved_model_is_found_beside_what_holds_too_much(run: Runner) -> None:
    assert run("moving_beside_much.leftovers") == [
        "Not named, and not tied to what has moved: x, y, with the old copy (8 bytes on cpu). Names that belong "
        "together move together in one line.",
        "optimizer has some of what has moved, and 48 bytes elsewhere: move optimizer as well.",
        "Not looked at in full, as that would take too long: much and more.",
    ]


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
