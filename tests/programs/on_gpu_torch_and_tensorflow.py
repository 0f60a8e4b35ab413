"""`on_gpu` where a framework has other insides than we know."""

import sys
import warnings

import tensorflow as tf
import torch

from gpu_magic import on_gpu
from tests.programs.errors import placement_error


def other_insides():
    """Return what blocks find, in turn, and what they warn of."""
    del type(sys.modules["tensorflow.python.eager.context"].context())._set_device
    found = []

    def names_torch():
        with on_gpu(1):
            found.append(str(torch.ones(1).device))

    def names_both():
        with on_gpu("cpu"):
            found.append(tf.constant(torch.ones(1).numpy()))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        errors = [placement_error(use) for use in (names_torch, names_torch, names_both)]
    after = [str(torch.ones(1).device), torch.accelerator.current_device_index()]
    return {"errors": errors, "found": found, "warned": [str(one.message) for one in caught], "after": after}
