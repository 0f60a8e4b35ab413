"""`on_gpu` with Keras on the backend that KERAS_BACKEND names."""

import keras
import numpy as np

from gpu_magic import on_gpu
from tests.programs.errors import placement_error
from tests.programs.threads import at_once

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
    )


def made():
    """Return where a model is made."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    return str(model.variables[0].value.device)


def places(first, second):
    """Return where models are made in blocks of two threads, after them, and where one is trained."""

    def in_block(device, all_have_begun):
        with on_gpu(device):
            all_have_begun()
            return made()

    found = [*at_once([in_block, first], here=[in_block, second]), made()]
    with on_gpu(first):
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(np.ones((4, 3)), np.ones((4, 1)), verbose=0)
    return [*found, str(model.variables[0].value.device), made()]


def refused(device, mirror):
    with on_gpu(device, mirror=mirror):
        keras.ops.ones(2)


def of_jax():
    with on_gpu("cpu:2") as device:
        pass
    with keras.device(device):
        there = next(iter(keras.ops.ones(1).devices()))
    return [device, there, placement_error(refused, "cpu:0,cpu:1", mirror=True)]


def without_gpus():
    return placement_error(refused, 0, mirror=False)
