"""`to_gpu` that fails, or is interrupted, at any point: all is as it was, and what was allocated is freed."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import gpu_magic
from gpu_magic import to_gpu
from gpu_magic.frameworks.target import LogicalDevice
from gpu_magic.move.move import carry_out, move_variables, read_places
from gpu_magic.move.plan import Plan
from tests.programs.errors import placement_error
from tests.programs.runner import ELSEWHERE, gives

if TYPE_CHECKING:
    from tests.programs.runner import Runner

if ELSEWHERE:
    import pretend_native
    import torch
    import torch._dynamo  # as in the other files with PyTorch: they have one server
    from torch import nn

    from tests.move.others import Cache, Lit, Pipe, Refusing
    from tests.programs.reached import devices_of, look


FOLDER = str(Path(gpu_magic.__file__).parent / "move")


def reserved(index):
    return torch.accelerator.memory_reserved(f"pretend:{index}")


class Odd:
    """Has a tensor that can't be replaced."""

    def __init__(self):
        self._x = torch.ones(3)

    @property
    def x(self):
        return self._x


class Setter(Odd):
    """Raises after its tensor has been replaced."""

    @property
    def x(self):
        return super().x

    @x.setter
    def x(self, value):
        self._x = value
        if value.device.type != "cpu":
            raise ValueError("not there")


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: torch.Tensor

    def __copy__(self):
        raise RuntimeError("no copies")


if ELSEWHERE:

    class Stuck(Pipe):
        """Raises after a part of it has moved."""

        __module__ = "torch"

        def to(self, device):
            self.model.to(device)
            raise KeyboardInterrupt("no way")


def failing(like_cuda):
    """Let moves fail at each step of theirs; return the error, whether all is as it was, where, what is allocated."""
    pretend_native.be_like_cuda(like_cuda)
    x, net = torch.ones(2), nn.Linear(2, 2)
    net(x).sum().backward()
    kinds = {
        "no setter": ("net cache box x odd.x", {"odd": Odd(), "cache": Cache()}),
        "its setter raises": ("net box x odd.x", {"odd": Setter()}),
        "it can't be built again": ("net box odd", {"odd": Frozen(x)}),
        "its own to raises": ("net pipe odd", {"odd": Stuck(), "pipe": Pipe()}),
        "a module refuses": ("lit odd", {"odd": Refusing(), "lit": Lit()}),  # after another one was told
    }
    found = {}
    for kind, (names, space) in kinds.items():
        space |= {"net": net, "x": x, "box": [x, {"x": x}]}
        before, error = look(space), placement_error(move_variables, space, (), names, device="0")
        found[kind] = [error, look(space) == before, devices_of(space), reserved(0)]
    return found


@gives(
    [
        [
            "pretend:1 ran out of memory after some. Nothing was changed. Move fewer, or free memory with %gpu_free"
        ],
        *([], True),
        *("cpu", "pretend:1", "pretend:1"),  # the tuple that was given, and what has moved at last
    ]
)
def test_failures():
    """Let the allocation of each number fail in turn, until there is none of that number."""
    model = nn.Sequential(nn.Embedding(9, 3), nn.BatchNorm1d(3), nn.Linear(3, 9, bias=False))
    model[2].weight = model[0].weight
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.arange(9)).sum().backward()
    optimizer.step()
    x = torch.arange(20.0).view(4, 5)
    pair, state = (x, x[1]), {"row": x[2], "leaf": torch.ones(2, requires_grad=True)}
    things = [model, optimizer, state, pair]
    before, errors, changed = look(things), set(), []
    for count in itertools.count(1):
        pretend_native.fail_after(count)
        error = placement_error(to_gpu, things, 1)
        if error is None:
            moved = [pair[0].device, things[3][0].device, model[0].weight.device]
            return [sorted(errors), changed, count > 10, *moved]
        errors.add(re.sub(r"after .* of \d+ bytes", "after some", error))
        if look(things) != before or reserved(1):
            changed.append(count)
    return None


def interrupted(fails):
    """Interrupt a move, or one that is undone, before each line in turn, until there is none of that number."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has it ignored
    wrong, left = [], 0

    def trace(frame, event, _):
        nonlocal left
        if event == "call" and not frame.f_code.co_filename.startswith(FOLDER):
            return None
        left -= event == "line"
        if event == "line" and not left:
            interrupt()
        return trace

    for count in itertools.count(1):
        space = {"net": nn.Linear(2, 2), "x": torch.ones(2), "odd": Stuck() if fails else Pipe()}
        places, plan = read_places("net x odd", space, ()), Plan(LogicalDevice("gpu", 0))
        for name, (value, _) in places.items():
            plan.add(name, value)
        left, raised = count, ""
        sys.settrace(trace)
        try:
            carry_out(plan, places)
        except BaseException as error:  # noqa: BLE001 - whichever it is
            raised = type(error).__name__
        finally:
            sys.settrace(None)
        if left > 0:  # it was not sent
            return [count, wrong, signal.getsignal(signal.SIGINT) is signal.default_int_handler]
        places.clear()
        vars(plan).clear()
        where = devices_of(space)
        if raised != "KeyboardInterrupt" or len(where) != 1 or (where == ["cpu"] and reserved(0)):
            wrong.append([count, raised, where, reserved(0)])
    return None


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


if ELSEWHERE:

    class Interrupting(Pipe):
        __module__ = "torch"

        def __init__(self):
            super().__init__()
            self.calls = []

        def to(self, device):
            self.calls.append(device)
            super().to(device)
            if device.type != "cpu":
                interrupt()


@gives([["cpu"], 0, [[], ["pretend:0", "cpu"]]])
def test_interrupted_once():
    """While copies are made, of which no other is begun."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    space = {"net": nn.Linear(2, 2), "odd": [Interrupting(), Interrupting()]}
    try:
        move_variables(space, (), "net odd", device="0")
    except KeyboardInterrupt:
        return [devices_of(space), reserved(0), sorted((one.calls for one in space["odd"]), key=len)]
    return None


@gives(["pretend:0", "pretend:0", True])
def test_ignored_interrupt():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe, x = to_gpu([Interrupting(), torch.ones(2)], 0)
    return [x.device, pipe.held["x"].device, signal.getsignal(signal.SIGINT) == signal.SIG_IGN]


FAILED = {
    "no setter": "AttributeError: property 'x' of 'Odd' object has no setter",
    "its setter raises": "ValueError: not there",
    "it can't be built again": "RuntimeError: no copies",
    "its own to raises": "KeyboardInterrupt: no way",
    "a module refuses": "ValueError: `.to` is not supported for `8-bit` models",
}


@pytest.mark.parametrize("like_cuda", [True, False], ids=["like CUDA", "where tensors are swapped"])
def test_each_step_is_undone_whatever_another_one_raises(run: Runner, like_cuda: bool) -> None:
    found = run(failing, like_cuda)
    for kind, error in FAILED.items():
        said = f"Moving to pretend:0 failed, so nothing was changed: {error}"
        is_same = kind != "its own to raises"  # what moved itself was told to go back
        assert found[kind] == [said, is_same, ["cpu"], 0], kind


@pytest.mark.parametrize("fails", [False, True])
def test_an_interrupt_at_any_line_is_raised_and_nothing_is_torn(run: Runner, fails: bool) -> None:
    count, wrong, is_handler_back = run(interrupted, fails)
    assert count > 80
    assert wrong == []
    assert is_handler_back
