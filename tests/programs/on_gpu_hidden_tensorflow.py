"""`on_gpu` around PyTorch and a package that uses TensorFlow: the names of the block say nothing of TensorFlow."""

import warnings

import hides_tensorflow
import torch

from gpu_magic import on_gpu
from tests.programs.errors import placement_error
from tests.programs.threads import at_once


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


def absent_beside_others():
    """Name a GPU that TensorFlow lacks, in a block that turns out to be beside code that does without it."""
    import tensorflow as tf

    hides_tensorflow.make()

    def in_block(wait):
        with on_gpu(1):
            wait()
            wait()

    def beside(wait):
        wait()
        with tf.device("/GPU:0"):  # TensorFlow's own fallback, which is the user's to rely on here
            device = hides_tensorflow.make().device[-5:]
        wait()
        return device

    return at_once([in_block], here=[beside])[-1]
