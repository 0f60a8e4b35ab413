"""`on_gpu` with a PyTorch that has no accelerator, on a machine whose GPUs CuPy sees."""

import cupy
import hides_torch
import torch

from gpu_magic import on_gpu
from tests.programs.errors import placement_error


def named():
    with on_gpu(0):
        raise AssertionError(torch)


def hidden(make, began):
    with on_gpu(0):
        began.append(cupy.ones(1).device.id)
        make()


def refused():
    ways, began = (hides_torch.make, hides_torch.make_with_a_generator), []
    found = [placement_error(named), *(placement_error(hidden, make, began) for make in ways)]
    return [*found, began, torch.ones(1).device]
