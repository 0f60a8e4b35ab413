"""`on_gpu` around imports, where no framework is imported yet."""

from gpu_magic import on_gpu
from gpu_magic.frameworks import get
from tests.programs.errors import placement_error


def jax_and_tensorflow():
    found = {}
    with on_gpu("cpu:2", only="jax"):
        import hides_jax
        import jax

        found["JAX inside"] = str(jax.numpy.ones(1).devices())
        found["JAX in another package"] = str(hides_jax.make().devices())
    with on_gpu("cpu"):
        import tensorflow as tf

        found["TensorFlow inside"] = tf.random.normal([2]).device[-5:]
    return {**found, "JAX outside": str(jax.numpy.ones(1).devices())}


def keras_inside():
    found = {"was imported": False}

    def use():
        with on_gpu("cpu:3"):
            import keras  # noqa: F401

            found["was imported"] = True

    found["inside"] = placement_error(use)
    return found


def keras_on_jax(only):
    with on_gpu("cpu:2", only=only):
        import keras
        import numpy as np

        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
        inside = model.weights[0].value.device
    outside = keras.ops.ones(1).device
    return {"inside": logical(inside), "outside": logical(outside)}


def logical(device):
    return str(get("jax").device_of(device))
