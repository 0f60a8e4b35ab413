"""`to_gpu` with all that can hold PyTorch's tensors."""

import collections
import dataclasses
import functools
import gc

import torch
import torch._dynamo  # as in the other files with PyTorch: they have one server
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from gpu_magic import devices_of, to_gpu
from tests.programs.errors import placement_error


def allocated(index):
    gc.collect()
    return torch.accelerator.memory_allocated(f"pretend:{index}")


Pair = collections.namedtuple("Pair", "a b")  # noqa: PYI024 - as users write it


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    rest: dict


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: torch.Tensor


class Slots:
    __slots__ = ("empty", "x")


class Mine(dict):
    pass


class Encoding(collections.UserDict):  # as Hugging Face's BatchEncoding
    def to(self, device):
        self.data = {key: value.to(device) for key, value in self.data.items()}
        return self


class Graph:  # as PyTorch Geometric's Data: it moves itself, and makes a new one
    __module__ = "torch"  # another package's class, whose insides are its own

    def __init__(self, x):
        self.x = x

    def to(self, device):
        return type(self)(self.x.to(device))


class Sparse:  # moves itself in place
    __module__ = "torch"

    def __init__(self, x):
        self.x = x

    def to(self, device):
        self.x = self.x.to(device)
        return self


def one_tensor_in_all_of_them():
    x = torch.arange(3.0)
    slots, mine = Slots(), Mine(x=x)
    slots.x, mine.extra = x, [x]
    encoding = Encoding({"x": x})
    given = {
        "tuple": (x, 1, "a"),
        "namedtuple": Pair(x, [x]),
        "dataclass": Batch(x, {"x": x}),
        "frozen dataclass": Frozen(x),
        "slots": slots,
        "own dict": mine,
        "set": {x},
        "frozenset": frozenset([x]),
        "deque": collections.deque([x]),
        "OrderedDict": collections.OrderedDict(b=x, a=x),
        "defaultdict": collections.defaultdict(list, k=[x]),
        "partial": functools.partial(print, x, end=x),
        "UserDict": encoding,
        "result of max": torch.max(x.view(1, 3), 1),
        "key": {x: 1},
        "makes a new one": Graph(x),
        "moves itself": Sparse(x),
    }
    things = list(given.values())
    moved = to_gpu(things, 3)
    new = moved[0][0]
    by_name = dict(zip(given, moved, strict=True))
    is_new = {
        "namedtuple": [by_name["namedtuple"].a is new, by_name["namedtuple"].b[0] is new],
        "dataclass": [by_name["dataclass"].x is new, by_name["dataclass"].rest["x"] is new],
        "frozen dataclass": [by_name["frozen dataclass"].x is new],
        "slots": [slots.x is new],
        "own dict": [mine["x"] is new, mine.extra[0] is new],
        "set": [new in by_name["set"]],
        "frozenset": [new in by_name["frozenset"]],
        "deque": [by_name["deque"][0] is new],
        "OrderedDict": [one is new for one in by_name["OrderedDict"].values()],
        "defaultdict": [by_name["defaultdict"]["k"][0] is new],
        "partial": [by_name["partial"].args[0] is new, by_name["partial"].keywords["end"] is new],
        "UserDict": [encoding.data["x"] is new],
        "key": [by_name["key"].get(new) == 1],
    }
    return {
        "list is the same": moved is things,
        "types that have changed": [
            name for name, one in by_name.items() if type(one) is not type(given[name])
        ],
        # One tensor, and the index that max has found; what has insides of its own is left out.
        "devices": devices_of(list(by_name.values())[:15]),
        "device": str(new.device),
        "is the new tensor": is_new,
        "keys of the OrderedDict": list(by_name["OrderedDict"]),
        "move themselves": {
            name: str(one.device)
            for name, one in {
                "result of max": by_name["result of max"].values,
                "makes a new one": by_name["makes a new one"].x,
                "moves itself": by_name["moves itself"].x,
            }.items()
        },
    }


def packed_sequence():
    moved = to_gpu(pack_sequence([torch.ones(3), torch.ones(2)]), 0)
    return [type(moved).__name__, str(moved.data.device), str(moved.batch_sizes.device)]


def loop():
    loop = [torch.arange(3.0)]
    loop.append((loop, {"loop": loop}))
    to_gpu(loop, 0)
    return {"is tied": [loop[1][0] is loop, loop[1][1]["loop"] is loop], "device": str(loop[0].device)}


def deep():
    deep = torch.arange(3.0)
    for i in range(20_000):
        deep = (deep,) if i % 2 else [deep]
    deep = to_gpu(deep, 0)
    while not isinstance(deep, torch.Tensor):
        deep = deep[0]
    return str(deep.device)


class Holder:
    def __init__(self, x):
        self.items = [x]


@dataclasses.dataclass(frozen=True)
class Mean:
    x: torch.Tensor

    def __copy__(self):
        raise RuntimeError("no copies")


def one_that_can_not_be_copied():
    model = nn.Linear(2, 2)
    model.weight.grad = torch.ones(2, 2)
    x = torch.ones(3)
    holder = Holder(x)
    things = [model, holder, x, Mean(x)]
    grad = model.weight.grad
    return {
        "error": placement_error(to_gpu, things, 0),
        "device": str(model.weight.device),
        "are the same": [model.weight.grad is grad, holder.items[0] is x, things[2] is x],
        "allocated": allocated(0),
    }
