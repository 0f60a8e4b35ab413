"""`on_gpu` around PyTorch and a package that uses TensorFlow: the names of the block say nothing of TensorFlow."""

import warnings

import hides_tensorflow
import torch

from gpu_magic import on_gpu
from tests.programs.errors import placement_error


def hidden(made):
    with on_gpu(1):
        made.append(str(torch.ones(1).device))
        return hides_tensorflow.make().device[-5:]


def used_twice():
    warnings.simplefilter("ignore")
    made = []
    found = {"first error": placement_error(hidden, made)}
    try:
        hidden(made)
    except Exception as error:  # noqa: BLE001 - TensorFlow's own, whichever it is
        found["second error"] = [type(error).__name__, str(error)]
    return {**found, "made on": made, "outside": hides_tensorflow.make().device[-5:]}
