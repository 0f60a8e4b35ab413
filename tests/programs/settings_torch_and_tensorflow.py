"""What `choose` tells PyTorch and TensorFlow that are imported already."""

import tensorflow as tf  # noqa: F401 - it is to be imported
import torch  # noqa: F401

from gpu_magic import choose
from tests.programs.limits import limits, limits_after_another_choice


def limit_after_imports():
    said = repr(choose("1,2", memory_limit="8GiB")).split("\n")[-1]
    return {"said": said, **limits(), "after another choice": limits_after_another_choice()}
