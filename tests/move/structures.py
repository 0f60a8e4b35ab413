"""Generated structures of tensors, for programs that move them: objects of many kinds, ties, views, cycles."""

import collections
import dataclasses
import functools

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from torch import nn

from tests.programs.reached import reach

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
def structures(draw, devices=("cpu",)):
    made = []
    for number in range(draw(st.integers(1, 3))):
        base = torch.arange(12.0).view(3, 4).to(draw(st.sampled_from(devices))) + 100 * number
        if draw(st.booleans()):
            base = base.clone().requires_grad_()
            if draw(st.booleans()):
                base.grad = torch.ones_like(base) * number
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


CHANGED = (
    list | dict | Open | Slots | collections.deque | collections.UserDict | functools.partial | nn.Parameter
)


def kept(things):
    return {id(one) for one in reach(things) if isinstance(one, CHANGED)}
