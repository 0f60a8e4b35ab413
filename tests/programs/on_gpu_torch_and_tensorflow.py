"""`on_gpu` where a framework has other insides than we know."""

import sys
import warnings
from importlib import import_module

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

    def names_none(device, only=None):
        with on_gpu(device, only=only):
            found.append("ran")

    def names_both():
        with on_gpu("cpu"):
            found.append(tf.constant(torch.ones(1).numpy()))

    def names_tensorflow():
        with on_gpu("cpu"):
            found.append(tf.constant(1))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        errors = [
            placement_error(names_torch),
            placement_error(names_torch),
            placement_error(names_none, 1),
            placement_error(names_tensorflow),
            placement_error(names_both),
            placement_error(names_none, "cpu", "tensorflow"),
        ]
    after = [str(torch.ones(1).device), torch.accelerator.current_device_index()]
    return {"errors": errors, "found": found, "warned": [str(one.message) for one in caught], "after": after}


def other_insides_at_import(folder):
    """Return what a block finds in PyTorch when somebody else's code in it imports another framework."""
    sys.path.insert(0, folder)
    from abacus_gpu_magic import FRAMEWORK

    def scope(device, is_used):
        raise AttributeError("rods have moved")

    FRAMEWORK.scope = scope
    with warnings.catch_warnings(record=True) as caught, on_gpu(1):
        warnings.simplefilter("always")
        import_module("aba" + "cus")  # what the code names, it uses
        found = str(torch.ones(1).device)
    return {"found": found, "warned": [str(one.message) for one in caught]}
