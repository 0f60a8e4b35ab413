"""`%to_gpu --all` beside objects of the user's that raise whatever they are asked."""

import contextlib

import numpy as np
import torch
import torch._dynamo  # as in the other files with PyTorch: they have one server
from torch import nn

from gpu_magic.move.move import move_variables
from gpu_magic.move.names import Names
from gpu_magic.move.plan import Plan
from gpu_magic.selection.target import LogicalDevice
from tests.programs.errors import placement_error


class Shape:
    def __init__(self):
        self.x = torch.ones(2)

    @property
    def shape(self):
        raise TypeError("no shape")


class Class:
    def __init__(self):
        self.x = torch.ones(2)

    @property
    def __class__(self):
        raise RuntimeError("no class")


class Everything:
    def __getattribute__(self, name):
        raise RuntimeError(name)


class Unhashable(type):
    def __hash__(cls):
        raise RuntimeError("no hash")

    def __eq__(cls, other):
        raise RuntimeError("not equal")


class OfOddType(metaclass=Unhashable):
    pass


class Dtype(np.ndarray):
    @property
    def dtype(self):
        raise TypeError("no dtype")


class To:
    __module__ = "torch"  # another package's

    def __init__(self):
        self.x = torch.ones(2)
        self.odd = Class()

    @property
    def shape(self):
        raise TypeError("no shape")

    def to(self, device):
        self.x = self.x.to(device)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)
        vars(self)["odd"] = Class()  # nn.Module would ask it for its class

    @property
    def shape(self):
        raise TypeError("no shape")


ODD = {
    "shape": Shape,
    "__class__": Class,
    "everything": Everything,
    "type": OfOddType,
    "dtype": lambda: np.ones(2).view(Dtype),
    "moves itself": To,
    "module": Net,
}


def move(space, names="", **options):
    return move_variables(Names(space, ()), names, device="0", **options)


def beside_all(kind):
    space = {"odd": ODD[kind](), "model": nn.Linear(2, 2)}
    move(space, all_of_them=True)
    return str(space["model"].weight.device)


def beside_one(kind):
    """Move a model alone; the odd object is looked at for what it has of the model."""
    space = {"odd": [ODD[kind]()], "model": nn.Linear(2, 2)}
    move(space, "model")
    return str(space["model"].weight.device)


def within(kind):
    space = {"both": [ODD[kind](), torch.ones(2)]}
    move(space, "both")
    return str(space["both"][1].device)


def named(kind):
    space = {"odd": ODD[kind]()}
    found = {"error": placement_error(move, space, "odd")}
    with contextlib.suppress(Exception):
        found["device"] = str(vars(space["odd"])["x"].device)
    return found


def name_that_is_no_name():
    space = {"my model": nn.Linear(2, 2), "model": nn.Linear(2, 2)}
    move(space, all_of_them=True)
    return [str(model.weight.device) for model in space.values()]


def odd_key():
    space = {"table": {Class(): torch.ones(2)}}
    move(space, "table")
    ((key, value),) = space["table"].items()
    return [str(value.device), str(key.x.device)]


class Counted:
    """Counts how often its attributes are asked for."""

    asked = 0

    def __init__(self, **attributes):
        self._attributes = attributes

    def __getattribute__(self, name):
        if name == "__dict__":
            Counted.asked += 1
        return object.__getattribute__(self, name)


def walks_with_all():
    x = torch.ones(2)
    space = {"one": Counted(x=x), "refused": Counted(x=torch.ones(2), y=torch.ones(2, device="meta"))}
    space |= {"plain": Counted(n=1), "same": [x], "after": Counted(z=space["refused"]._attributes["x"])}
    plan = Plan(LogicalDevice("gpu", 0))
    why = {name: plan.add_if_possible(name, value) for name, value in space.items()}
    return {
        "asked": Counted.asked,
        "refused": [name for name, reason in why.items() if reason],
        "added": {one.name: [one.load.arrays, one.shared_with] for one in plan.variables},
    }
