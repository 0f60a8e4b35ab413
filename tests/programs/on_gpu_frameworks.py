"""`on_gpu` with TensorFlow and JAX on four logical CPUs, CuPy's stand-in, and PyTorch on its pretend accelerator.

What a block uses is seen by the names in the function that it is in, so each function names what it is about.
"""

import functools
import os
import sys
import warnings

import cupy
import hides_jax
import hides_tensorflow
import jax
import jax.numpy as jnp
import keras
import numpy as np
import tensorflow as tf
import torch

from gpu_magic import on_gpu
from gpu_magic.frameworks import device_of, get
from tests.programs.cells import run_guide
from tests.programs.errors import placement_error
from tests.programs.threads import at_once

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
)


def by_tensorflow():
    """Return where TensorFlow makes a tensor."""
    return tf.random.normal([2]).device[-5:]


def by_jax():
    return jnp.ones(2).devices()


def by_cupy():
    return cupy.ones(2).device.id


def by_torch():
    return [torch.ones(1).device, torch.accelerator.current_device_index()]


def by_all():
    return [*by_torch(), by_tensorflow(), by_jax()]


# Each alone


def tensorflow():
    with on_gpu("cpu:1"):
        pass
    why("None", 7)
    found = {"started by unrelated blocks": [get(name).is_started() for name in ("tensorflow", "jax")]}
    with on_gpu("cpu:2") as device:
        inside = [device, by_tensorflow(), tf.Variable(1.0).device[-5:]]
        inside += [tf.function(lambda: tf.random.normal([2]))().device[-5:]]
        with on_gpu("/CPU:1"):
            inside.append(by_tensorflow())
        inside.append(by_tensorflow())
    physical, logical = tf.config.list_physical_devices("CPU")[0], tf.config.list_logical_devices("CPU")
    for one in physical, logical[2]:
        with on_gpu(one):
            inside.append(by_tensorflow())
    with on_gpu(logical[:2], mirror=True):
        found["mirrored"] = tf.distribute.get_strategy().num_replicas_in_sync
    return {**found, "inside": inside, "outside": by_tensorflow()}


def mirrored():
    def replicas(variable):
        return [value.device[-5:] for value in variable.values]

    found = []
    for _ in range(2):  # as in two cells
        with on_gpu("cpu:1,cpu:3", mirror=True):
            if not found:
                model = keras.Sequential([keras.layers.Dense(1)])
                model.compile("sgd", "mse")
            model.fit(np.ones((8, 4)), np.ones((8, 1)), batch_size=4, verbose=0)
            found += [tf.distribute.get_strategy().num_replicas_in_sync, replicas(model.variables[0].value)]

    def in_block(wait):
        with on_gpu("cpu:1,cpu:3", mirror=True):
            wait()
            return replicas(tf.Variable(1.0))

    def beside(wait):
        wait()
        return [tf.distribute.has_strategy(), by_tensorflow()]

    with on_gpu("cpu:1,cpu:9", mirror=True, or_cpu=True):
        found += [tf.distribute.has_strategy(), by_tensorflow()]
    return [*found, *at_once([in_block], here=[beside]), tf.distribute.has_strategy(), by_tensorflow()]


def names_of_gpus():
    """TensorFlow's GPU:0 is CUDA's second one if only that is visible to it."""
    eager = sys.modules["tensorflow.python.eager.context"].context()
    gpus = [tf.config.PhysicalDevice(f"/physical_device:GPU:{index}", "GPU") for index in range(2)]
    eager._initialize_physical_devices()
    eager._physical_devices += gpus  # as on a machine with two
    eager._visible_device_list = gpus[1:]
    return [device_of(gpus[1]), device_of(tf.config.LogicalDevice("/device:GPU:0", "GPU"))]


def of_jax():
    f = jax.jit(lambda x: x + jnp.ones(2))
    with on_gpu(jax.devices()[2]) as device:
        arrays = [
            jax.device_put(1.0, device),
            jnp.ones(2),
            f(jnp.ones(2)),
            jax.random.normal(jax.random.key(0)),
        ]
        inside = [device, *(one.devices() for one in arrays)]
        with on_gpu("cpu"):
            inside.append(by_jax())
    return [*inside, by_jax()]


def of_cupy():
    def in_block(index, all_have_begun):
        with on_gpu(index):
            all_have_begun()
            return by_cupy()

    with on_gpu(cupy.cuda.Device(3)) as device:
        found = [device, by_cupy()]
        with on_gpu("cpu"):  # it has none
            found.append(by_cupy())
    found += [by_cupy(), *at_once([in_block, 1], [in_block, 2], here=[in_block, 3]), by_cupy()]
    with on_gpu("cuda:0"):  # which does not name JAX, that has not started
        return [*found, by_cupy(), sys.modules["jax"].config.jax_default_device]


def logged(function):
    @functools.wraps(function)
    def inner():
        return function()

    return inner


@logged
def compute():
    return jnp.ones(1)


def why(names, wanted, **options):
    """Return why a block does not begin that uses what is named."""
    options = "".join(f", {name}={value!r}" for name, value in options.items())
    block = f"with on_gpu({wanted!r}{options}):\n    raise AssertionError({names})"
    return placement_error(exec, compile(block, "<cell>", "exec"), globals())


def refused():
    found = [why(name, "cpu:4") for name in ("tf", "jnp")]
    found += [why("keras", "cpu:4", only="keras"), why("tf", 0), why("jnp", 0), why("compute()", 1)]
    found += [why("cupy", 4), why("tf", "cpu:0,cpu:1", mirror=True, only="jax,torch")]
    found.append(why("tf", "cpu:0,cpu:9", mirror=True))
    os.environ["CUPY_STANDIN_BROKEN"] = "1"
    return [*found, why("cupy", 0).partition(" (")[0]]


# Beside PyTorch, where the names of the block say nothing of the other


def torch_in(device):
    with on_gpu(device):
        return torch.ones(1).device


def hidden_tensorflow(made):
    with on_gpu(1):
        made.append(torch.ones(1).device)
        return hides_tensorflow.make().device[-5:]


def tensorflow_used_twice():
    warnings.simplefilter("ignore")
    found = [placement_error(hidden_tensorflow, made := [])]
    try:
        hidden_tensorflow(made)
    except Exception as error:  # noqa: BLE001 - TensorFlow's own, whichever it is
        found += [type(error).__name__, "GPU:1" in str(error)]
    return [*found, made, hides_tensorflow.make().device[-5:]]


def tensorflow_beside():
    """Name a GPU that TensorFlow lacks, in a block that turns out to be beside code that does without it."""
    hides_tensorflow.make()

    def in_block(wait):
        with on_gpu(1):
            wait()
            wait()

    def beside(wait):
        wait()
        with tf.device("/GPU:0"):  # TensorFlow's own fallback, which is the user's to rely on here
            device = hides_tensorflow.make().device[-5:]
        wait()
        return device

    return at_once([in_block], here=[beside])[-1]


def other_insides():
    """Return what blocks find, in turn, where a framework has other insides than we know, and what they warn of."""
    del type(sys.modules["tensorflow.python.eager.context"].context())._set_device
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [torch_in(1), torch_in(1), why("tf, torch", "cpu")]
    return [*found, [str(one.message) for one in caught], *by_torch()]


def hidden_jax(device):
    with on_gpu(device):
        return hides_jax.make().devices()


def jax_started_by_a_block():
    found = [[torch_in(device), get("jax").is_started()] for device in (0, 2)]
    found += [placement_error(hidden_jax, "cpu:3"), hidden_jax("cpu:3"), hides_jax.make().devices()]
    return [*found, placement_error(hidden_jax, 0)]


def jax_started_on_a_gpu():
    try:
        return hidden_jax(0)
    except RuntimeError as error:
        return str(error).partition(" request")[0]


# Threads, tasks, and what is left open


def blocks_in_threads():
    def in_block(index, all_have_begun):
        with on_gpu(index, only="torch"), on_gpu(f"cpu:{index}", only="tensorflow,jax"):
            all_have_begun()
            return by_all()

    def without_block(all_have_begun):
        all_have_begun()
        return by_all()

    found = at_once([in_block, 1], [in_block, 2], [without_block], here=[in_block, 3])
    return [*found, *at_once([in_block, 1], here=[without_block]), by_all()]


def left_open():
    """A device of TensorFlow's, before it starts and after; JAX's, configured inside a block, and beside one."""
    found = []
    for _ in range(2):
        with on_gpu("cpu:1", only="tensorflow"):
            tf.device("/CPU:3").__enter__()
        found.append(by_tensorflow())
    with on_gpu("cpu", only="jax"):
        jax.config.update("jax_default_device", jax.devices()[3])
        with on_gpu("cpu:1", only="jax"):
            found.append(by_jax())
    found.append(by_jax())

    def in_block(all_have_begun):
        with on_gpu("cpu:1", only="jax"):
            all_have_begun()
            all_have_begun()

    def configure(all_have_begun):
        all_have_begun()
        jax.config.update("jax_default_device", jax.devices()[3])
        all_have_begun()

    at_once([in_block], here=[configure])
    return [*found, by_jax()]


def guide(name, device):
    """Run a notebook cell by cell; after each, nothing that is set by default is another one."""
    return run_guide(name, device, lambda: [str(one) for one in (*by_all(), jax.config.jax_default_device)])
