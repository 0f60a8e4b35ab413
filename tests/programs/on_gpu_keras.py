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


def device_of(model):
    return str(model.variables[0].value.device)


def fit(device):
    with on_gpu(device):
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(np.ones((4, 3)), np.ones((4, 1)), verbose=0)
        inside = device_of(model)
    outside = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    return [inside, device_of(outside)]


def refused(device, mirror):
    def use():
        with on_gpu(device, mirror=mirror):
            keras.ops.ones(2)

    return placement_error(use)


def given_device(wanted):
    with on_gpu(wanted) as device:
        pass
    with keras.device(device):
        return [device, str(next(iter(keras.ops.ones(1).devices())))]


def made():
    """Return where a model is made."""
    return device_of(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))


def blocks_in_threads(*devices):
    def in_block(device, all_have_begun):
        with on_gpu(device):
            all_have_begun()
            return made()

    *others, mine = devices
    return [*at_once(*([in_block, device] for device in others), here=[in_block, mine]), made()]
