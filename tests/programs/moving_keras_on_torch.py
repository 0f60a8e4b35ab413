"""`to_gpu` with Keras on PyTorch: its layers are PyTorch's modules."""

import keras
import torch  # noqa: F401 - the backend

from gpu_magic import to_gpu
from tests.programs.errors import placement_error


def layer():
    return placement_error(to_gpu, {"a": keras.layers.Dense(2)}, 1)
