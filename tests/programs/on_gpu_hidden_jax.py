"""`on_gpu` around PyTorch and a package that uses JAX: the names of the block say nothing of JAX."""

import hides_jax
import torch

from gpu_magic import on_gpu
from gpu_magic.frameworks import get
from tests.programs.errors import placement_error


def unrelated(device):
    with on_gpu(device):
        return str(torch.ones(1).device)


def hidden(device):
    with on_gpu(device):
        return str(hides_jax.make().devices())


def unrelated_blocks():
    return {str(i): [unrelated(i), get("jax").is_started()] for i in (0, 2)}


def started_by_a_block():
    for device in (0, 2):
        unrelated(device)
    return {
        "first": placement_error(hidden, "cpu:3"),
        "second": hidden("cpu:3"),
        "outside": str(hides_jax.make().devices()),
        "on a GPU": placement_error(hidden, 0),
    }


def started_on_a_gpu():
    try:
        return hidden(0)
    except RuntimeError as error:
        return str(error)
