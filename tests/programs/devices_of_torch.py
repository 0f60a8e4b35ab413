"""`devices_of` with PyTorch's tensors, and what holds them."""

import collections
import dataclasses
import functools
import types
import warnings

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from gpu_magic import devices_of
from gpu_magic.frameworks import get
from gpu_magic.selection.target import LogicalDevice

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
        "values of a dict": {1: x}.values(),
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
