"""`on_gpu` around imports, where no framework is imported yet."""

import sys

from gpu_magic import on_gpu
from gpu_magic.frameworks import get
from tests.programs.cells import run, shell_with_magics
from tests.programs.errors import placement_error


def jax_and_tensorflow():
    with on_gpu("cpu:2", only="jax"):
        import hides_jax
        import jax

        found = [jax.numpy.ones(1).devices(), hides_jax.make().devices()]
    with on_gpu("cpu"):
        import tensorflow as tf

        found.append(tf.random.normal([2]).device[-5:])
    return [*found, jax.numpy.ones(1).devices()]


def imports_keras():
    with on_gpu("cpu:3"):
        import keras  # noqa: F401


def keras_inside():
    """Its backend is in use then, which has no such device."""
    return [placement_error(imports_keras), "keras" in sys.modules]


def keras_on_jax(only):
    with on_gpu("cpu:2", only=only):
        import keras
        import numpy as np

        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
        inside = model.weights[0].value.device
    return [str(get("jax").device_of(device)) for device in (inside, keras.ops.ones(1).device)]


def jax_through_a_package():
    shell = shell_with_magics()
    inside = run(shell, "%%on_gpu cpu:2\nimport makes_with_jax\nstr(makes_with_jax.make().devices())")
    return [inside, run(shell, "str(makes_with_jax.make().devices())")]
