"""Any nested structure, moved: the same graph of objects on another device."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.programs.runner import Runner


def test_the_graph_of_objects_is_the_same_after_a_move(run: Runner) -> None:
    assert run("moving_structures.any_structure") > 100
