"""`on_gpu` around PyTorch and the import of a Keras that computes with it."""

import sys

import torch  # noqa: F401 - the backend

from gpu_magic import on_gpu
from gpu_magic.frameworks import get


def imported_inside():
    with on_gpu(2):
        import keras

        layer = keras.layers.Dense(1)
        layer.build((1, 2))
        device = str(layer.kernel.value.device)
    return {
        "device": device,
        "backend": keras.backend.backend(),
        "JAX is imported": "jax" in sys.modules,
        "JAX is started": get("jax").is_started(),
    }
