"""`to_gpu` with TensorFlow and Keras, on four logical CPUs."""

import keras
import tensorflow as tf

from gpu_magic import to_gpu
from tests.programs.errors import placement_error

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
)


def tensors():
    x = tf.constant([1.0, 2.0])
    ragged, sparse = tf.ragged.constant([[1], [2, 3]]), tf.sparse.from_dense([[0, 1]])
    given = {"x": x, "again": [x], "ragged": ragged, "sparse": sparse, "text": tf.constant("a")}
    moved = to_gpu(given, "cpu:3")
    return {
        "tensor": moved["x"].device[-5:],
        "one thing is one": moved["again"][0] is moved["x"],
        "before": x.device[-5:],
        "text": moved["text"].device[-5:],
        "ragged": [type(moved["ragged"]).__name__, moved["ragged"].values.device[-5:]],
        "ragged values": moved["ragged"].to_list(),
        "sparse": [type(moved["sparse"]).__name__, moved["sparse"].values.device[-5:]],
    }


def variable():
    x = tf.constant([1.0, 2.0])
    return placement_error(to_gpu, [x, tf.Variable(x)], "cpu:1")


def keras_layer():
    return placement_error(to_gpu, keras.layers.Dense(2), "cpu:1")


def no_gpu():
    return placement_error(to_gpu, tf.constant([1.0, 2.0]), 1)


def keras_model_that_is_there():
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(2)])
    return to_gpu(model, "cpu") is model
