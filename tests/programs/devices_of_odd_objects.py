"""`devices_of` with objects that raise when they are asked, with all frameworks there."""

import dataclasses
import shelve
import tempfile
import unittest.mock
import warnings
from pathlib import Path

import jax
import tensorflow as tf
import torch

from gpu_magic import devices_of


class Raising:
    def __getattribute__(self, name):
        raise RuntimeError(name)


class Len(list):
    def __len__(self):
        raise RuntimeError

    def __iter__(self):
        raise RuntimeError


class Dict(dict):
    def values(self):
        raise RuntimeError


@dataclasses.dataclass
class Data:
    x: int

    def __getattribute__(self, name):
        raise RuntimeError(name)


class Net(torch.nn.Module):
    def modules(self):
        raise RuntimeError


def closed_shelf():
    with tempfile.TemporaryDirectory() as folder:
        with shelve.open(str(Path(folder) / "shelf")) as shelf:
            pass
        return shelf


ODD = {
    "raising": Raising,
    "list": lambda: Len([1]),
    "dict": lambda: Dict(a=1),
    "dataclass": lambda: Data(1),
    "module": Net,
    "closed shelf": closed_shelf,
    "mocked torch.Tensor": lambda: unittest.mock.MagicMock(spec=torch.Tensor),
    "mocked jax.Array": lambda: unittest.mock.MagicMock(spec=jax.Array),
    "mocked tf.Tensor": lambda: unittest.mock.MagicMock(spec=tf.Tensor),
}


def beside_a_tensor():
    odd = {name: make() for name, make in ODD.items()}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = {name: devices_of([one, torch.ones(1)]) for name, one in odd.items()}
        found["all"] = devices_of(list(odd.values()), torch.ones(1))
    return {"devices": found, "said": [str(one.message) for one in caught]}
