"""`devices_of` with TensorFlow and Keras, on four logical CPUs."""

import keras
import tensorflow as tf

from gpu_magic import devices_of, on_gpu

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
)


def tensors():
    with on_gpu("cpu:2"):
        tensor, variable = tf.ones([10]), tf.Variable(tf.ones([5], tf.float64))
    return {"tensor": devices_of(tensor), "variable": devices_of(variable)}


def keras_model():
    with on_gpu("cpu:2"):
        return devices_of(keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]))


def mirrored_variable():
    with on_gpu("cpu:0,cpu:1", mirror=True):
        variable = tf.Variable(tf.ones([4]))
    return devices_of(variable)


def composite_tensors():
    return devices_of(tf.sparse.from_dense([[0, 1.0]]), tf.ragged.constant([[1], [2, 3]]))


class Mine(tf.Module):
    def __init__(self):
        self.w = tf.Variable([1.0])


def module():
    return devices_of(Mine())
