"""`on_gpu` where PyTorch and JAX are imported."""

import functools

import jax  # noqa: F401 - it is to be imported
import jax.numpy as jnp
import torch

from gpu_magic import on_gpu
from gpu_magic.frameworks import get
from tests.programs.errors import placement_error


def torch_alone(device):
    with on_gpu(device):
        made = str(torch.ones(1).device)
    return {"made on": made, "JAX is started": get("jax").is_started()}


def logged(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)

    return inner


@logged
def compute():
    return jnp.ones(1)


def behind_a_decorator():
    ran = []

    def use():
        with on_gpu(1):
            ran.append(compute())

    return {"error": placement_error(use), "ran": bool(ran)}


def own(x):
    return x * 2


class Net(torch.nn.Module):
    def forward(self, x):
        return own(x)


net = Net()


def mere_word():
    with on_gpu(1):
        for jax in [1]:  # noqa: B007 - a name, and not the module
            pass
        given = torch.empty(1)
        return {
            "net": str(net(torch.ones(1)).device),
            "text": "no jax here",
            "given": str(torch.normal(0.0, 1.0, (1,), out=given).device),
        }


def given_device():
    with on_gpu(2) as device:
        pass
    return [str(device), str(torch.zeros(1).to(device).device)]
