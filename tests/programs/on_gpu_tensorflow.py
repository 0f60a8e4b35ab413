"""`on_gpu` with TensorFlow, on four logical CPUs."""

import sys

import keras
import numpy as np
import tensorflow as tf

from gpu_magic import on_gpu
from gpu_magic.frameworks import device_of, get
from tests.programs.errors import placement_error
from tests.programs.threads import at_once

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


def several_refused(devices, mirror, only=None):
    ran = []

    def use():
        with on_gpu(devices, mirror=mirror, only=only):
            ran.append("ran")

    return {"error": placement_error(use), "ran": bool(ran)}


def only_keras(device):
    def use():
        with on_gpu(device, only="keras"):
            keras.ops.ones(1)

    return placement_error(use)


def device_objects():
    found = {}
    with on_gpu(tf.config.list_physical_devices("CPU")[0]):
        found["physical"] = made()
    logical = tf.config.list_logical_devices("CPU")
    with on_gpu(logical[2]):
        found["logical"] = made()
    with on_gpu(logical[:2], mirror=True):
        found["several"] = tf.distribute.get_strategy().num_replicas_in_sync
    return found


def names_of_gpus():
    eager = sys.modules["tensorflow.python.eager.context"].context()
    gpus = [tf.config.PhysicalDevice(f"/physical_device:GPU:{index}", "GPU") for index in range(2)]
    eager._initialize_physical_devices()
    eager._physical_devices += gpus  # as on a machine with two
    eager._visible_device_list = gpus[1:]
    return {
        "physical": str(device_of(gpus[1])),
        "logical": str(device_of(tf.config.LogicalDevice("/device:GPU:0", "GPU"))),
    }


def given_device():
    with on_gpu("cpu:2") as device:
        pass
    with tf.device(device):
        return [str(device), made()]


def mirrored_in_a_thread():
    def in_block(wait):
        with on_gpu("cpu:1,cpu:3", mirror=True):
            wait()
            return [value.device[-5:] for value in tf.Variable(1.0).values]

    def beside(wait):
        wait()
        return [tf.distribute.has_strategy(), made()]

    return at_once([in_block], here=[beside])
