"""`to_gpu` with generated structures: the same graph of objects on another device.

What is compared with is what `torch.save` and `torch.load` make of it before the move: they keep shared
objects and shared storages by Python's and PyTorch's own rules. Two structures are the same if there is a
one-to-one mapping between their objects, and between their storages.
"""

import collections
import dataclasses
import functools
import io

import torch
import torch._dynamo  # as in the other files with PyTorch: they have one server
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from gpu_magic import to_cpu, to_gpu

Pair = collections.namedtuple("Pair", "a b")  # noqa: PYI024 - as users write it


@dataclasses.dataclass
class Open:
    a: object
    b: object = None


@dataclasses.dataclass(frozen=True)
class Closed:
    a: object
    b: object = None


class Own:
    pass


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
    changeable = []
    for _ in range(draw(st.integers(1, 12))):
        some = [draw(st.sampled_from(made)) for _ in range(draw(st.integers(0, 4)))]
        kind = draw(
            st.sampled_from(["list", "tuple", "dict", "pair", "open", "closed", "own", "deque", "partial"])
        )
        a, b = [*some, None, None][:2]
        own = Own()
        own.a, own.b = a, b
        new = {
            "list": some,
            "tuple": tuple(some),
            "dict": dict(enumerate(some)),
            "pair": Pair(a, b),
            "open": Open(a, b),
            "closed": Closed(a, b),
            "own": own,
            "deque": collections.deque(some),
            "partial": functools.partial(print, a, end=b),
        }[kind]
        made.append(new)
        if kind in ("list", "dict", "open", "own"):
            changeable.append(new)
    for one in changeable:  # cycles
        if draw(st.booleans()):
            other = draw(st.sampled_from(made))
            if isinstance(one, list):
                one.append(other)
            elif isinstance(one, dict):
                one["more"] = other
            else:
                one.b = other
    return [draw(st.sampled_from(made)) for _ in range(3)] + made[-2:]


def components(thing):
    if isinstance(thing, dict):
        return [*thing.keys(), *thing.values()]
    if isinstance(thing, list | tuple | collections.deque):
        return list(thing)
    if isinstance(thing, functools.partial):
        return [*thing.args, *thing.keywords.values()]
    return list(vars(thing).values()) if isinstance(thing, Open | Closed | Own) else []


def reach(root):
    seen, open_ = {}, [root]
    while open_:
        one = open_.pop()
        if id(one) not in seen:
            seen[id(one)] = one
            open_ += components(one)
    return list(seen.values())


def tensors_of(things):
    return [one for one in reach(things) if isinstance(one, torch.Tensor)]


def storage(tensor):
    return tensor.untyped_storage()._cdata


def copied(things):
    file = io.BytesIO()
    torch.save((things, [one.grad for one in tensors_of(things)]), file)
    file.seek(0)
    other, grads = torch.load(file, weights_only=False)
    for one, grad in zip(tensors_of(other), grads, strict=True):
        one.grad = grad
    return other


def compare(before, after, device):
    there, back, storages, storages_back = {}, {}, {}, {}
    open_ = [(before, after)]
    while open_:
        one, other = open_.pop()
        assert type(one) is type(other), (one, other)
        if isinstance(one, int | str | type(None)) or one == ():  # these Python shares as it likes
            assert one == other
            continue
        known = id(one) in there
        assert there.setdefault(id(one), id(other)) == id(other), "one thing has become two"
        assert back.setdefault(id(other), id(one)) == id(one), "two things have become one"
        if known:
            continue
        if isinstance(one, torch.Tensor):
            assert other.device == torch.device(device)
            assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
            assert (one.requires_grad, one.is_leaf) == (other.requires_grad, other.is_leaf)
            assert torch.equal(one.detach().cpu(), other.detach().cpu())
            assert storages.setdefault(storage(one), storage(other)) == storage(other)
            assert storages_back.setdefault(storage(other), storage(one)) == storage(one)
            open_ += [(one.grad, other.grad)] if one.is_leaf else []
        assert len(components(one)) == len(components(other))
        open_ += zip(components(one), components(other), strict=True)


def kept(things):
    return {id(one) for one in reach(things) if isinstance(one, list | dict | Open | Own | nn.Parameter)}


def any_structure():
    """Move generated structures there and back, and return how many were; the first wrong one raises."""
    checked = []

    @settings(
        max_examples=300,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(structures())
    def check(things):
        tensors = tensors_of(things)
        # What was computed can't be saved; views that backward goes through have a test of their own.
        if not tensors or any(one.grad_fn is not None for one in tensors):
            return
        before, ids = copied(things), kept(things)
        moved = to_gpu(things, 1)
        assert moved is things
        assert kept(moved) == ids
        compare(before, moved, "pretend:1")
        compare(before, to_cpu(moved), "cpu")
        checked.append(len(tensors))

    check()
    return len(checked)
