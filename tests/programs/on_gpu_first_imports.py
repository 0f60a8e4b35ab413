"""`on_gpu` around imports, where no framework is imported yet."""

import importlib.util
import sys
import warnings

from gpu_magic import on_gpu
from gpu_magic.frameworks import get
from gpu_magic.placement.scope import innermost
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


def lazily_loaded_jax():
    with on_gpu("cpu:2", only="jax"):
        spec = importlib.util.find_spec("jax")
        loader = importlib.util.LazyLoader(spec.loader)
        spec.loader = loader
        module = importlib.util.module_from_spec(spec)
        sys.modules["jax"] = module
        loader.exec_module(module)
    import jax

    return {
        "outside": str(jax.numpy.ones(1).devices()),
        "loader": type(jax.__loader__).__name__,
        "loader in the spec": type(jax.__spec__.loader).__name__,
    }


def plug_in(folder):
    sys.path.insert(0, folder)
    global abacus  # noqa: PLW0603 - as a notebook's cell imports it
    import abacus

    found = {}

    def use():
        with on_gpu(1):
            return abacus.device

    def past():
        with on_gpu(2):
            return abacus.device

    found["inside"] = use()
    found["outside"] = abacus.device
    found["past the last one"] = placement_error(past)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import broken  # noqa: F401

        found["beside a broken one"] = use()
    return {**found, "warnings": [str(one.message) for one in caught]}


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


def no_framework():
    def use():
        with on_gpu(0):
            pass

    return placement_error(use)


def nothing_else(folder):
    """Return what happens in a block that names nothing, where the only framework fails."""
    sys.path.insert(0, folder)
    import abacus  # noqa: F401
    from abacus_gpu_magic import FRAMEWORK

    def scope(device, is_used):
        raise AttributeError("rods have moved")

    FRAMEWORK.scope, ran = scope, []

    def use():
        with on_gpu(1):
            ran.append("ran")

    return {"error": placement_error(use), "ran": bool(ran)}


def error_at_the_beginning(folder):
    sys.path.insert(0, folder)
    global abacus  # noqa: PLW0603 - as a notebook's cell imports it
    import abacus
    from abacus_gpu_magic import FRAMEWORK

    def own_device(device):
        raise KeyError(abacus.device)

    FRAMEWORK.own_device = own_device
    found = {}
    try:
        with on_gpu(1):
            found["ran"] = abacus.device
    except KeyError as error:
        found["device at the error"] = error.args[0]
    return {**found, "outside": abacus.device, "is in a block": innermost() is not None}
