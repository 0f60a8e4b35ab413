"""`on_gpu` with TensorFlow, on four logical CPUs."""

import keras
import numpy as np
import tensorflow as tf

from gpu_magic import on_gpu
from gpu_magic.frameworks import get
from tests.programs.errors import placement_error

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
)


def made():
    """Return where a tensor is made."""
    return tf.random.normal([2]).device[-5:]


def devices():
    found = {}
    with on_gpu("cpu:2"):
        found["tensor"] = made()
        found["variable"] = tf.Variable(1.0).device[-5:]
        found["function"] = tf.function(lambda: tf.random.normal([2]))().device[-5:]
        with on_gpu("/CPU:1"):
            found["in an inner block"] = made()
        found["inside again"] = made()
    return {**found, "outside": made()}


def refused(device):
    ran = []

    def use():
        with on_gpu(device):
            ran.append(tf.random)

    return {"error": placement_error(use), "ran": bool(ran)}


def unrelated_block():
    with on_gpu("cpu:1"):
        pass


def starting():
    unrelated_block()
    found = {"after an unrelated block": get("tensorflow").is_started()}
    with on_gpu("cpu:1"):
        found["inside"] = made()
        found["after one that uses it"] = get("tensorflow").is_started()
    return {**found, "outside": made()}


def mirrored():
    found = {}

    def replicas():
        return [value.device[-5:] for value in model.variables[0].value.values]

    with on_gpu("cpu:1,cpu:3", mirror=True):
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(np.ones((8, 4)), np.ones((8, 1)), batch_size=4, verbose=0)
        found["in sync"] = tf.distribute.get_strategy().num_replicas_in_sync
        found["replicas"] = replicas()
    with on_gpu("cpu:1,cpu:3", mirror=True):  # in another cell
        model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0)
        found["replicas in another block"] = replicas()
    return {**found, "mirrors outside": tf.distribute.has_strategy(), "outside": made()}


def several_refused(devices, mirror):
    ran = []

    def use():
        with on_gpu(devices, mirror=mirror):
            ran.append("ran")

    return {"error": placement_error(use), "ran": bool(ran)}


def only_keras(device):
    def use():
        with on_gpu(device, only="keras"):
            keras.ops.ones(1)

    return placement_error(use)
