"""`to_gpu` with PyTorch's tensors, where JAX is imported and has its own idea of containers."""

import collections

import jax  # noqa: F401 - it is to be imported
import torch
from torch import nn

from gpu_magic import to_gpu


def ordered_dict():
    key, x = torch.ones(2), torch.zeros(1)
    given = collections.OrderedDict([(key, 1), ("a", x), ("b", 2)])
    moved = to_gpu(given, 0)
    return {
        "is the same": moved is given,
        "types of keys": [type(one).__name__ for one in moved],
        "values": list(moved.values())[0::2],
        "device": str(moved["a"].device),
    }


def defaultdict():
    given = collections.defaultdict(list, {"x": torch.zeros(1)})
    moved = to_gpu(given, 0)
    return {"is the same": moved is given, "new": moved["new"], "device": str(moved["x"].device)}


def state_dict():
    given = nn.BatchNorm1d(2).state_dict()
    moved = to_gpu(given, 0)
    return {"is the same": moved is given, "has its version": "version" in moved._metadata[""]}


def loop():
    given = collections.OrderedDict(x=torch.zeros(1))
    given["self"] = given
    moved = to_gpu(given, 0)
    return {
        "is the same": moved is given,
        "is tied": moved["self"] is moved,
        "device": str(moved["x"].device),
    }
