"""`to_gpu` with generated structures: the same graph of objects, and of storages, on another device."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from hypothesis import given, settings

from gpu_magic import to_gpu
from tests.programs.runner import ELSEWHERE, gives

if TYPE_CHECKING:
    from tests.programs.runner import Runner

if ELSEWHERE:
    import torch
    import torch._dynamo  # as in the other files with PyTorch: they have one server

    from tests.move.structures import SLOW, kept, structures
    from tests.programs.reached import devices_of, form, tensors_of


def any_structure():
    """Move generated structures there and back, and return how many were; the first wrong one raises."""
    checked = []

    @settings(SLOW, max_examples=200, database=None, derandomize=True)
    @given(structures())
    def check(things):
        tensors = tensors_of(things)
        # Views that backward goes through become others, and have a test of their own.
        if not tensors or any(one.grad_fn is not None for one in tensors):
            return
        before, ids = form(things), kept(things)
        for device in "pretend:1", "cpu":
            assert to_gpu(things, device) is things
            assert kept(things) == ids
            assert form(things) == before
            assert devices_of(things) == [device]
        checked.append(len(tensors))

    check()
    return len(checked)


@gives([[True] * 3 + [False], [True] * 4, ["b", "a"], "<class 'frozenset'>", "pretend:1"])
def test_by_hash():
    """Sets and keys, with what is there now."""
    x = torch.ones(1)
    given = [{x}, {x: 1}, collections.OrderedDict([(x, 1), ("b", x), ("a", 2)]), frozenset([x])]
    new, *moved = to_gpu([x, *given], 1)
    same = [one is other for one, other in zip(moved, given, strict=True)]
    return [same, [next(iter(one)) is new for one in moved], [*moved[2]][1:], type(moved[3]), new.device]


def test_the_graph_of_objects_is_the_same_after_a_move(run: Runner) -> None:
    assert run(any_structure) > 50
