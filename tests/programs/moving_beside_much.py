"""A move beside variables that hold very much: what is looked at of them, counted in objects and not in seconds."""

import datetime as dt
from types import SimpleNamespace

import torch
import torch._dynamo  # as in the other files with PyTorch: they have one server
from torch import nn

from gpu_magic import to_gpu
from gpu_magic.move.move import carry_out, leftover_lines
from gpu_magic.move.plan import Plan
from gpu_magic.objects.free import free
from gpu_magic.objects.memory import holdings_of
from gpu_magic.objects.walk import Budget, Walker
from gpu_magic.selection.target import LogicalDevice

ENDLESS = 10**9  # seconds


class Record:
    pass


def many(count):
    return [Record() for _ in range(count)]


TABLES = {
    "tuples of numbers": lambda: [(i, i + 0.5, str(i)) for i in range(10_000)],
    "rows of lists": lambda: [[i, [i, (i,)]] for i in range(10_000)],
    "records": lambda: [{"id": i, "tags": ["a", "b"]} for i in range(10_000)],
    "dates": lambda: [dt.date(2000, 1, 1) + dt.timedelta(i) for i in range(10_000)],
    "dict by pairs": lambda: {(i, i): {i, i + 1} for i in range(10_000)},
    "one list many times": lambda: [[[0] * 100] * 100] * 100,
}


def visited(kind):
    """Return how many objects are visited for a table of plain values."""
    walker = Walker()
    for _ in walker.walk([TABLES[kind]()]):
        pass
    return len(walker.visited)


def array_among_plain_values():
    """Return whether the one array is found, at each depth, in the last of many containers that are plain."""
    x, found = torch.ones(1), []
    for depth in range(8):
        value = x
        for _ in range(depth):
            value = [(1, 2), value, {"a": [3]}]
        rows = [(i, [i]) for i in range(100)]
        found.append(len(holdings_of([[*rows, value]])))
    cycle = [(1, 2)]
    cycle += [cycle, [cycle, {"x": x}]]
    return [*found, len(holdings_of([cycle]))]


def planned(names, space):
    plan = Plan(LogicalDevice("gpu", 0))
    for name in names:
        plan.add(name, space[name])
    return plan


def leftovers():
    """Move a model beside much, and find its optimizer and what holds an old copy all the same."""
    model, x = nn.Linear(2, 2), torch.ones(2)
    optimizer = torch.optim.Adam(model.parameters())
    model(x).sum().backward()
    optimizer.step()
    space = {"much": many(1000), "model": model, "more": many(1000), "x": x, "optimizer": optimizer, "y": [x]}
    plan = planned(["model", "x"], space)
    carry_out(plan)
    return leftover_lines(plan, space.items(), Budget(objects=2000, seconds=ENDLESS))


class Variables:
    """What `free` asks of IPython's history."""

    def __init__(self, space, outputs):
        self.variables, self.kept = lambda: space, lambda: outputs

    def drop(self, name):
        pass


def freeing():
    x = torch.ones(2, device="pretend:1")
    history = Variables(
        {"much": many(1000), "x": x}, {"Out[1]": many(1000), "Out[2]": torch.ones(3, device="pretend:1")}
    )
    found = free(history, budget=Budget(objects=2000, seconds=ENDLESS))
    return {"held": found.held, "dropped": list(found.dropped), "unfinished": found.unfinished}


def no_time():
    """Return what is said where there is no time at all."""
    budget = Budget(seconds=0)
    found = free(Variables({"much": many(1000)}, {}), budget=budget)
    return found.unfinished


def moved_itself():
    """What is named is walked whole, however much it holds."""
    one = SimpleNamespace(x=torch.ones(1))
    much = [one, *many(210_000)]
    to_gpu(much, 1)
    return str(one.x.device)
