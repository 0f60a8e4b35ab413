"""`to_gpu` with generated structures: the same graph of objects, and of storages, on another device."""

from __future__ import annotations

import collections
import dataclasses
import functools
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu_magic import to_gpu
from tests.programs.runner import ELSEWHERE, gives

if TYPE_CHECKING:
    from tests.programs.runner import Runner

if ELSEWHERE:
    import torch
    import torch._dynamo  # as in the other files with PyTorch: they have one server
    from torch import nn

    from tests.programs.reached import devices_of, form, reach, tensors_of


Pair = collections.namedtuple("Pair", "a b")  # noqa: PYI024 - as users write it


@dataclasses.dataclass
class Open:
    a: object
    b: object = None


@dataclasses.dataclass(frozen=True)
class Closed:
    a: object
    b: object = None


class Slots:
    __slots__ = ("a", "empty")

    def __init__(self, a):
        self.a = a


class Mine(dict):
    pass


class Row(tuple):  # noqa: SLOT001 - with attributes
    pass


def labelled(made, label):
    made.label = label
    return made


KINDS = [
    list,
    tuple,
    lambda some: dict(enumerate(some)),
    lambda some: Pair(*[*some, None, None][:2]),
    lambda some: Open(*[*some, None][:2]),
    lambda some: Closed(*[*some, None][:2]),
    lambda some: functools.partial(print, *some, end=some),
    Slots,
    lambda some: labelled(Mine(enumerate(some[1:])), some[:1]),
    lambda some: labelled(Row(some[1:]), some[:1]),
    collections.deque,
    lambda some: collections.OrderedDict(reversed([*enumerate(some)])),
    lambda some: collections.defaultdict(list, enumerate(some)),
    lambda some: collections.UserDict(enumerate(some)),
]

SLOW = settings(deadline=None, suppress_health_check=list(HealthCheck))  # no machine is too slow

VIEWS = [
    lambda t: t,
    lambda t: t[1:],
    lambda t: t[:, 1],
    lambda t: t.t(),
    lambda t: t[::2],
    lambda t: t[0, 0],
    lambda t: t.detach(),
    lambda t: t.expand(2, 3, 4),
    lambda t: t[:0],
]


@st.composite
def structures(draw):
    made = []
    for number in range(draw(st.integers(1, 3))):
        base = torch.arange(12.0).view(3, 4) + 100 * number
        if draw(st.booleans()):
            base = base.clone().requires_grad_()
            if draw(st.booleans()):
                base.grad = torch.ones(3, 4) * number
        if draw(st.booleans()):
            base = nn.Parameter(base.detach().clone())
        made.append(base)
        made += [draw(st.sampled_from(VIEWS))(base) for _ in range(draw(st.integers(0, 3)))]
    made += [7, "text", None]
    for _ in range(draw(st.integers(1, 12))):
        some = [draw(st.sampled_from(made)) for _ in range(draw(st.integers(0, 4)))]
        made.append(draw(st.sampled_from(KINDS))(some))
    for one in made:  # cycles
        if isinstance(one, list | dict | Open) and draw(st.booleans()):
            other = draw(st.sampled_from(made))
            if isinstance(one, list):
                one.append(other)
            else:
                (one if isinstance(one, dict) else vars(one))["b"] = other
    return [draw(st.sampled_from(made)) for _ in range(3)] + made[-2:]


if ELSEWHERE:
    CHANGED = (
        list
        | dict
        | Open
        | Slots
        | collections.deque
        | collections.UserDict
        | functools.partial
        | nn.Parameter
    )


def kept(things):
    return {id(one) for one in reach(things) if isinstance(one, CHANGED)}


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
