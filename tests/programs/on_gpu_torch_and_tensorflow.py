"""`on_gpu` where TensorFlow has other insides than we know."""

import sys

import tensorflow as tf  # noqa: F401 - it is to be imported
import torch

from gpu_magic import on_gpu
from tests.programs.errors import placement_error


def other_insides():
    ran = []

    def use():
        with on_gpu(1):
            ran.append("ran")

    del type(sys.modules["tensorflow.python.eager.context"].context())._set_device
    return {
        "error": placement_error(use),
        "ran": bool(ran),
        "after": [str(torch.ones(1).device), torch.accelerator.current_device_index()],
    }
