"""`on_gpu` with TensorFlow and JAX on four logical CPUs, CuPy's stand-in, and PyTorch on its pretend accelerator.

What a block uses is seen by the names in the function that it is in, so each function names what it is about.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import warnings
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_magic import on_gpu
from gpu_magic.frameworks import device_of, get
from gpu_magic.testing import simulate, start_cuda
from tests.programs.cells import run_guide
from tests.programs.errors import placement_error
from tests.programs.runner import ELSEWHERE, gives
from tests.programs.threads import at_once

if TYPE_CHECKING:
    from tests.programs.runner import Runner

if ELSEWHERE:
    import cupy
    import hides_jax
    import hides_tensorflow
    import jax
    import jax.numpy as jnp
    import keras
    import tensorflow as tf
    import torch

TENSORFLOW_WITHOUT_CUDA = f"TensorFlow {version('tensorflow-cpu')} is built without CUDA"
JAX_WITHOUT_GPU = f"JAX {version('jax')} has no GPU here"
FOUR = "cpu:0, cpu:1, cpu:2 and cpu:3"
JAX_CPU = [f"{{CpuDevice(id={index})}}" for index in range(4)]
NONE = ["cpu", 0, "CPU:0", JAX_CPU[0]]
IN_BLOCKS = [[f"pretend:{index}", index, f"CPU:{index}", JAX_CPU[index]] for index in range(4)]
INSIDES = "TensorFlow cannot be set to {}: tensorflow.python.eager.context.Context._set_device is not there."

if ELSEWHERE:
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


ONE_PER_THREAD = (
    "{} has one default device per thread, and another asyncio task uses it on cpu:1. "
    "Run one of them in a thread: await asyncio.to_thread(...)"
)


@gives([[JAX_CPU[1]] * 2, ONE_PER_THREAD.format("JAX"), "pretend:2", [JAX_CPU[1]] * 2, NONE])
def test_two_tasks_cannot_use_a_framework_that_has_one_default_device_per_thread():
    """A block of another framework leaves it alone."""

    async def of_jax(device):
        with on_gpu(device):
            found = [by_jax()]
            await asyncio.sleep(0.02)
            return [*found, by_jax()]

    async def of_torch():
        await asyncio.sleep(0.01)
        with on_gpu(2):
            await asyncio.sleep(0.02)
            return torch.ones(1).device

    async def main():
        first = asyncio.create_task(of_jax("cpu:1"))
        await asyncio.sleep(0)
        refused = await asyncio.gather(of_jax("cpu:2"), of_torch(), of_jax("cpu:1"), return_exceptions=True)
        return [await first, str(refused[0]), *refused[1:]]

    return [*asyncio.run(main()), by_all()]


@gives(
    {
        "started by unrelated blocks": [False, False],
        "mirrored": 2,
        "inside": ["/CPU:2", "CPU:2", "CPU:2", "CPU:2", "CPU:1", "CPU:2", "CPU:0", "CPU:2"],
        "outside": "CPU:0",
    }
)
def test_tensorflow():
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


@gives(
    [
        *[2, ["CPU:1", "CPU:3"]] * 2,  # in two blocks; or on one CPU; then in a block, and beside it
        *(False, "CPU:0"),
        *(["CPU:1", "CPU:3"], [False, "CPU:0"], False, "CPU:0"),
    ]
)
def test_mirrored():
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


OF_ANOTHER_WORKER = "/job:worker/replica:0/task:1/device:GPU:0"


@gives(["cuda:1", "cuda:1", "/device:GPU:7", OF_ANOTHER_WORKER])
def test_names_of_gpus():
    """TensorFlow's GPU:0 is CUDA's second one if only that is visible to it."""
    eager = sys.modules["tensorflow.python.eager.context"].context()
    gpus = [tf.config.PhysicalDevice(f"/physical_device:GPU:{index}", "GPU") for index in range(2)]
    eager._initialize_physical_devices()
    eager._physical_devices += gpus  # as on a machine with two
    eager._visible_device_list = gpus[1:]
    names = ("/device:GPU:0", "/device:GPU:7", OF_ANOTHER_WORKER)
    return [device_of(gpus[1]), *(device_of(tf.config.LogicalDevice(name, "GPU")) for name in names)]


@gives(["cpu:2", *[JAX_CPU[2]] * 4, JAX_CPU[0], JAX_CPU[0]])
def test_of_jax():
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


@gives(["<CUDA Device 3>", 3, 3, 0, 1, 2, 3, 0, 0, "gpu"])
def test_of_cupy():
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


def hidden_cupy():
    return sys.modules["cupy"].ones(2).device.id


def beside_cupy(device, work=lambda: None):
    """Return where a block runs that uses PyTorch, and what it does besides."""
    with on_gpu(device):
        return [torch.ones(1).device, work()]


def starts_cuda_and_uses_cupy():
    start_cuda()
    return hidden_cupy()


RAN_ELSEWHERE = (
    "CuPy ran on cuda:0, not on cuda:2: CUDA had not started, and the code does not name CuPy. "
    "CUDA has started now: run this again."
)


@gives(
    [
        *(["pretend:1", None], False),  # whether CuPy has called CUDA
        *(["pretend:2", 0], [RAN_ELSEWHERE], ["pretend:2", 2], 0),
    ]
)
def test_cupy_beside():
    """Blocks for PyTorch, where CuPy is imported: before CUDA has started, where it starts, and after that."""
    found = [beside_cupy(1), cupy.cuda.runtime.has_started]
    with simulate("4xA100-80GB"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found.append(beside_cupy(2, starts_cuda_and_uses_cupy))
        found.append([str(one.message) for one in caught])
        found.append(beside_cupy(2, hidden_cupy))
    return [*found, by_cupy()]


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


@gives(
    [
        f"cpu:4 cannot be used: TensorFlow has {FOUR}.",
        f"cpu:4 cannot be used: JAX has {FOUR}.",
        f"cpu:4 cannot be used: TensorFlow has {FOUR}.",
        f"cuda:0 cannot be used: {TENSORFLOW_WITHOUT_CUDA}.",
        f"cuda:0 cannot be used: {JAX_WITHOUT_GPU}.",
        f"cuda:1 cannot be used: {JAX_WITHOUT_GPU}.",
        "cuda:4 cannot be used: CuPy sees cuda:0, cuda:1, cuda:2 and cuda:3.",
        "cpu and cpu:1 cannot be used: --mirror is for TensorFlow, which --only jax,torch leaves out.",
        f"cpu and cpu:9 cannot be used: TensorFlow has {FOUR}.",
        "cuda:0 cannot be used: CuPy cannot use CUDA",
    ]
)
def test_refused():
    found = [why(name, "cpu:4") for name in ("tf", "jnp")]
    found += [why("keras", "cpu:4", only="keras"), why("tf", 0), why("jnp", 0), why("compute()", 1)]
    found += [why("cupy", 4), why("tf", "cpu:0,cpu:1", mirror=True, only="jax,torch")]
    found.append(why("tf", "cpu:0,cpu:9", mirror=True))
    os.environ["CUPY_STANDIN_BROKEN"] = "1"
    return [*found, why("cupy", 0).partition(" (")[0]]


def torch_in(device):
    with on_gpu(device):
        return torch.ones(1).device


def hidden_tensorflow(made):
    with on_gpu(1):
        made.append(torch.ones(1).device)
        return hides_tensorflow.make().device[-5:]


@gives(
    [
        f"TensorFlow ran on the CPU, not on cuda:1: {TENSORFLOW_WITHOUT_CUDA}.",
        *("InvalidArgumentError", True, ["pretend:1", "pretend:1"], "CPU:0"),
    ]
)
def test_tensorflow_used_twice():
    warnings.simplefilter("ignore")
    found = [placement_error(hidden_tensorflow, made := [])]
    try:
        hidden_tensorflow(made)
    except Exception as error:  # noqa: BLE001 - TensorFlow's own, whichever it is
        found += [type(error).__name__, "GPU:1" in str(error)]
    return [*found, made, hides_tensorflow.make().device[-5:]]


@gives("CPU:0")
def test_tensorflow_beside():
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


@gives(
    [
        *("pretend:1", "pretend:1", f"{INSIDES.format('cpu')} To leave it out, add --only torch"),
        [f"{INSIDES.format('cuda:1')} It is left out. Code that uses it does not run in a block."],
        *("cpu", 0),
    ]
)
def test_other_insides():
    """Return what blocks find, in turn, where a framework has other insides than we know, and what they warn of."""
    del type(sys.modules["tensorflow.python.eager.context"].context())._set_device
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [torch_in(1), torch_in(1), why("tf, torch", "cpu")]
    return [*found, [str(one.message) for one in caught], *by_torch()]


def hidden_jax(device):
    with on_gpu(device):
        return hides_jax.make().devices()


@gives(
    [
        *(["pretend:0", False], ["pretend:2", False]),
        # It can't be told of its fourth device before it starts.
        "JAX cannot run this on cpu:3: it did not know its devices before it started. It has "
        "started now: run this again.",
        *(JAX_CPU[3], JAX_CPU[0]),
        f"JAX cannot run this on cuda:0: {JAX_WITHOUT_GPU}.",
    ]
)
def test_jax_started_by_a_block():
    found = [[torch_in(device), get("jax").is_started()] for device in (0, 2)]
    found += [placement_error(hidden_jax, "cpu:3"), hidden_jax("cpu:3"), hides_jax.make().devices()]
    return [*found, placement_error(hidden_jax, 0)]


@gives("Unknown backend: 'gpu'")
def test_jax_started_on_a_gpu():
    try:
        return hidden_jax(0)
    except RuntimeError as error:
        return str(error).partition(" request")[0]


def blocks_in_threads():
    def in_block(index, all_have_begun):
        with on_gpu(index, only="torch"), on_gpu(f"cpu:{index}", only="tensorflow,jax"):
            all_have_begun()
            return by_all()

    def without_block(all_have_begun):
        all_have_begun()
        return by_all()

    by_all()  # now and then a process crashes whose frameworks start in several threads, also without a block
    found = at_once([in_block, 1], [in_block, 2], [without_block], here=[in_block, 3])
    return [*found, *at_once([in_block, 1], here=[without_block]), by_all()]


@gives(["CPU:0", "CPU:0", JAX_CPU[1], JAX_CPU[0], JAX_CPU[3]])
def test_left_open():
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


def test_threads_are_told_apart_in_a_process_that_ends_as_any_other(run: Runner) -> None:
    found = run.to_the_end(blocks_in_threads)
    assert found == [*IN_BLOCKS[1:3], NONE, IN_BLOCKS[3], IN_BLOCKS[1], NONE, NONE]


@pytest.mark.parametrize(
    ("name", "device", "value"),
    [
        ("torch_images", "1", "pretend:1"),
        ("jax_training", "cpu:2", JAX_CPU[2]),
        pytest.param("torch_text", "1", "pretend:1", marks=pytest.mark.nightly),
        pytest.param("tensorflow_keras", "cpu:2", "CPU:2", marks=pytest.mark.nightly),
        pytest.param("flax_model", "cpu:2", JAX_CPU[2], marks=pytest.mark.nightly),
        pytest.param("equinox_model", "cpu:2", JAX_CPU[2], marks=pytest.mark.nightly),
    ],
)
def test_a_guide_runs_cell_by_cell(run: Runner, name: str, device: str, value: str) -> None:
    """Notebooks in the manner of public guides, under `%%on_gpu`; they need no network."""
    assert run(guide, name, device) == {"value": value, "left": []}
