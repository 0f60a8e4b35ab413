"""`on_gpu` with a PyTorch that has no accelerator, on a machine whose GPUs CuPy sees."""

import cupy
import hides_torch
import torch

from gpu_magic import on_gpu
from tests.programs.errors import placement_error


def named():
    ran = []

    def use():
        with on_gpu(0):
            ran.append("ran")
            torch.ones(1)

    return {"error": placement_error(use), "ran": bool(ran)}


def hidden(way):
    began = []

    def use():
        with on_gpu(0):
            began.append(cupy.ones(1).device.id)
            getattr(hides_torch, way)()

    return {"error": placement_error(use), "began on": began, "after": str(torch.ones(1).device)}
