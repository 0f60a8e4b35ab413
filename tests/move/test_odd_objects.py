"""Objects of the user's that raise whatever they are asked, beside, within and as what is moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.programs.runner import Runner

KINDS = ["shape", "__class__", "everything", "type", "dtype", "moves itself", "module"]


@pytest.mark.parametrize("kind", KINDS)
def test_all_are_moved_beside_an_object_that_raises(run: Runner, kind: str) -> None:
    assert run("moving_odd_objects.beside_all", kind) == "pretend:0"


@pytest.mark.parametrize("kind", KINDS)
def test_one_is_moved_beside_an_object_that_raises(run: Runner, kind: str) -> None:
    assert run("moving_odd_objects.beside_one", kind) == "pretend:0"


@pytest.mark.parametrize("kind", KINDS)
def test_what_holds_an_object_that_raises_is_moved(run: Runner, kind: str) -> None:
    assert run("moving_odd_objects.within", kind) == "pretend:0"


NOTHING = "There is nothing to move in odd ({}): no framework's arrays."


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("shape", {"error": None, "device": "pretend:0"}),
        ("__class__", {"error": None, "device": "pretend:0"}),
        ("everything", {"error": NOTHING.format("Everything")}),
        ("type", {"error": NOTHING.format("OfOddType")}),
        ("moves itself", {"error": None, "device": "pretend:0"}),
    ],
)
def test_an_object_that_raises_is_moved_or_refused_in_a_line(
    run: Runner, kind: str, found: dict[str, Any]
) -> None:
    assert run("moving_odd_objects.named", kind) == found


def test_a_variable_whose_name_is_not_an_identifier_is_moved_with_all(run: Runner) -> None:
    assert run("moving_odd_objects.name_that_is_no_name") == ["pretend:0", "pretend:0"]


def test_a_dict_is_moved_whose_keys_raise_for_their_class(run: Runner) -> None:
    assert run("moving_odd_objects.odd_key") == ["pretend:0", "pretend:0"]


def test_with_all_each_variable_is_walked_through_once(run: Runner) -> None:
    """What was found in one that can't be moved is found again in the next that has it."""
    assert run("moving_odd_objects.walks_with_all") == {
        "asked": 5,  # of each type, the first object is read twice
        "refused": ["refused"],
        "added": {"one": [1, ""], "same": [0, "one"], "after": [1, ""]},
    }
