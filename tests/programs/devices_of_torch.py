"""`devices_of` with PyTorch's tensors, and what holds them."""

import collections
import dataclasses
import datetime as dt
import functools
import sys
import types
import warnings

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from gpu_magic import devices_of
from gpu_magic.frameworks import get
from gpu_magic.frameworks.target import LogicalDevice
from gpu_magic.objects.memory import holdings_of
from gpu_magic.objects.walk import Walker

x = torch.ones(10, device="pretend:1")


def tensors():
    return {
        "one": devices_of(x),
        "views": devices_of(x[:2], x.view(5, 2)),
        "sparse and meta": devices_of(torch.eye(4).to_sparse(), torch.ones(2, device="meta")),
        "a class": devices_of(torch.nn.Linear),
        "lazy": sum(devices_of(torch.nn.LazyLinear(3)).values()),
    }


def shown():
    return {"nested": repr(devices_of([x, {"a": (x,)}])), "nothing": repr(devices_of(3, "x", None, object()))}


def uncounted():
    """Return what is known of memory where PyTorch does not count it, as before 2.9, and what is said of that."""
    del torch.accelerator.get_memory_info, torch._C._accelerator_getDeviceStats
    torch.ones(1, device="pretend:0")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pools = [get("torch").pools() for _ in range(2)]
        free = get("torch").free_bytes(LogicalDevice("gpu", 0, "pretend"))
    return {"pools": list(map(dict, pools)), "free": free, "said": [str(one.message) for one in caught]}


def tied_model():
    model = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.Linear(10, 10)).to("pretend:2")
    model[1].weight = model[0].weight  # tied
    model.register_buffer("mean", torch.ones(3))
    return model


def model():
    return devices_of(tied_model())


def optimizer():
    model = tied_model()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 10, device="pretend:2")).sum().backward()
    optimizer.step()
    return devices_of(optimizer)


def loop():
    loop = [x]
    loop.append(loop)
    return devices_of(loop)


class Trainer:
    def __init__(self):
        self.model, self.name = tied_model(), "trainer"


def trainer():
    return devices_of(Trainer())


@dataclasses.dataclass
class Batch:
    x: object


class Slotted:
    __slots__ = ("__x", "empty")

    def __init__(self):
        self.__x = x


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.plain = [x]


def containers():
    objects = np.empty(2, object)
    objects[0] = x
    things = {
        "deque": collections.deque([x]),
        "namespace": types.SimpleNamespace(x=x),
        "UserList": collections.UserList([x]),
        "UserDict": collections.UserDict({1: x}),
        "partial": functools.partial(print, x),
        "dataclass": Batch(x),
        "slots": Slotted(),
        "module": Net(),
        "object array": objects,
        "dataset": TensorDataset(x),
        "data loader": DataLoader(TensorDataset(x)),
        "set in a tuple": (x, {x}),
    }
    return {name: devices_of(thing).get("pretend:1") for name, thing in things.items()}


TABLES = {
    "tuples of numbers": lambda: [(i, i + 0.5, str(i)) for i in range(1000)],
    "records": lambda: [{"id": i, "tags": ["a", "b"]} for i in range(1000)],
    "dates": lambda: [dt.date(2000, 1, 1) + dt.timedelta(i) for i in range(1000)],
    "pairs": lambda: {(i, i): {i, i + 1} for i in range(1000)},
    "one list many times": lambda: [[[0] * 100] * 100] * 100,
}


def visited():
    """Return how many objects are visited for tables of plain values."""
    found = {}
    for kind, make in TABLES.items():
        walker = Walker()
        collections.deque(walker.walk([make()]), maxlen=0)
        found[kind] = len(walker.visited)
    return found


def array_among_plain_values():
    """Return whether the one array is found, at each depth, in the last of many containers that are plain."""
    found = []
    for depth in range(8):
        value = x
        for _ in range(depth):
            value = [(1, 2), value, {"a": [3]}]
        rows = [(i, [i]) for i in range(100)]
        found.append(len(holdings_of([[*rows, value]])))
    cycle = [(1, 2)]
    cycle += [cycle, [cycle, {"x": x}]]
    return [*found, len(holdings_of([cycle]))]


def failing(size, **attributes):
    local = [torch.ones(size)]
    error = ValueError(len(local), torch.ones(1))
    vars(error).update(attributes)
    raise error


def wrapping():
    try:
        failing(3)
    except ValueError as error:
        raise RuntimeError("second") from error


def caught(call, *args, **options):
    try:
        call(*args, **options)
    except Exception as error:  # noqa: BLE001 - that is what is looked at
        return error
    return None


def saved_errors():
    """They keep the local variables of the functions that raised them."""
    errors = {
        "of a function": caught(failing, 2),
        "that led to it": caught(wrapping),
        "with an attribute": caught(failing, 4, more=torch.ones(2)),
        "in a group": ExceptionGroup("several", [caught(failing, 7)]),
    }
    return {name: devices_of(error) for name, error in errors.items()}


def error_of_a_cell():
    """One that a cell has caught keeps none of the user's variables: they are the variables' own."""
    space = vars(sys.modules["__main__"])
    code = "try:\n    1 / 0\nexcept Exception as error:\n    saved = error"
    exec(compile(code, "<cell>", "exec"), space)
    return devices_of(space["saved"])
