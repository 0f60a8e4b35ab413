"""`on_gpu` around imports, where no framework is imported yet; and Keras on the backend that is set here."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from gpu_magic import on_gpu
from gpu_magic.frameworks import get
from gpu_magic.testing import simulate
from tests.conftest import torch_build
from tests.programs.cells import run, shell_with_magics
from tests.programs.errors import placement_error
from tests.programs.runner import gives

if TYPE_CHECKING:
    from tests.programs.runner import Runner


TORCH, TORCH_HAS_CUDA = torch_build()
TORCH_WITHOUT_CUDA = "PyTorch sees no GPU" if TORCH_HAS_CUDA else f"PyTorch {TORCH} is built without CUDA"
JAX_CPU = [f"{{CpuDevice(id={index})}}" for index in range(4)]


@gives(
    [
        f"cuda:0 cannot be used: {TORCH_WITHOUT_CUDA}.",
        *[f"This cannot run on cuda:0: {TORCH_WITHOUT_CUDA}."] * 2,
        *([0, 0], "cpu", 0),
    ]
)
def test_torch_without_cuda():
    """It has no accelerator, on a machine whose GPUs CuPy sees."""
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    import cupy
    import hides_torch
    import torch

    def named():
        import torch

        with on_gpu(0):
            raise AssertionError(torch)

    def hidden(make):
        import cupy

        with on_gpu(0):
            began.append(cupy.ones(1).device.id)
            make()

    began, ways = [], (hides_torch.make, hides_torch.make_with_a_generator)
    found = [placement_error(named), *(placement_error(hidden, make) for make in ways)]
    return [*found, began, torch.ones(1).device, cupy.ones(1).device.id]


@gives([JAX_CPU[2], JAX_CPU[0]])
def test_jax_through_a_package():
    shell = shell_with_magics()
    inside = run(shell, "%%on_gpu cpu:2\nimport makes_with_jax\nstr(makes_with_jax.make().devices())")
    return [inside, run(shell, "str(makes_with_jax.make().devices())")]


def made_by_torch():
    torch = sys.modules["torch"]
    return [str(torch.ones(1).device), torch.accelerator.current_device_index()]


def makes_with_torch():
    import torch

    return [str(torch.ones(1).device), torch.accelerator.current_device_index()]


@gives(
    [
        *[["cpu", 0]] * 2,  # in an ordinary cell while the task runs, and after the task has ended
        *([3, "pretend:3"], "done"),
    ]
)
def test_torch_in_the_main_thread_beside_a_task():
    """PyTorch is first imported by an ordinary cell, and then used by the task."""
    shell = shell_with_magics()
    run(shell, "import cupy, gpu_magic, threading\ngo = threading.Event()")
    body = "here = cupy.ones(1).device.id\ngo.wait()\nimport torch\n[here, str(torch.ones(1).device)]"
    run(shell, f"%%on_gpu 3 --background job\n{body}")
    run(shell, "import torch")
    beside = made_by_torch()
    task = run(shell, "go.set()\njob = gpu_magic.tasks()['job']\njob.join()\njob")
    return [beside, made_by_torch(), task.result, str(task).partition(" · ")[0]]


@gives(["cpu", 3, "done"])
def test_torch_without_cuda_in_the_main_thread_beside_a_task():
    """The task's device is one that PyTorch lacks, and the task does not use PyTorch."""
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    shell = shell_with_magics()
    run(shell, "import cupy, gpu_magic, threading\ngo = threading.Event()")
    run(shell, "%%on_gpu 3 --background job\ngo.wait()\ncupy.ones(1).device.id")
    made = run(shell, "import torch\nstr(torch.ones(1).device)")
    task = run(shell, "go.set()\njob = gpu_magic.tasks()['job']\njob.join()\njob")
    return [made, task.result, str(task).partition(" · ")[0]]


@gives([["pretend:3", 3], ["cpu", 0], "done"])
def test_torch_in_a_task():
    """PyTorch is first imported within the task's one statement."""
    shell = shell_with_magics()
    shell.user_ns["makes"] = makes_with_torch
    run(shell, "import cupy, gpu_magic")
    run(shell, "%%on_gpu 3 --background job\ncupy, makes()")
    task = run(shell, "job = gpu_magic.tasks()['job']\njob.join()\njob")
    return [task.result[1], made_by_torch(), str(task).partition(" · ")[0]]


def nothing_in(device):
    with on_gpu(device):
        pass


@gives(["cuda:1 cannot be used: the GPUs here are SIMULATED, and nothing runs on them.", False])
def test_cupy_that_is_not_used():
    """Return why a block cannot run that uses no framework, and whether CuPy was asked, which starts CUDA."""
    import cupy

    with simulate("4xA100-80GB"):
        return [placement_error(nothing_in, 1), cupy.cuda.runtime.has_started]


def imports_keras(device):
    with on_gpu(device):
        import keras  # noqa: F401


def keras_in(device, **options):
    with on_gpu(device, **options):
        keras.ops.ones(1)  # noqa: F821 - it is imported below


def keras_on(backend, first, second):
    """Return why a block fails that imports Keras, which brings its backend into use; and one that uses it."""
    os.environ["KERAS_BACKEND"] = backend
    found = placement_error(imports_keras, first)
    globals()["keras"] = sys.modules["keras"]
    return [found, placement_error(keras_in, second)]


@gives(
    [
        *(JAX_CPU[2], JAX_CPU[2], JAX_CPU[0]),
        *["cpu:3 cannot be used: TensorFlow has cpu:0."] * 2,  # in the block that imports Keras, and the next
    ]
)
def test_jax_and_tensorflow():
    with on_gpu("cpu:2", only="jax"):
        import hides_jax
        import jax

        found = [jax.numpy.ones(1).devices(), hides_jax.make().devices()]
    return [*found, jax.numpy.ones(1).devices(), *keras_on("tensorflow", "cpu:3", "cpu:3")]


def mirrored(or_cpu=False):
    def mirrors():
        with on_gpu("cpu:0,cpu:9", mirror=True, or_cpu=bool(or_cpu)):
            import tensorflow as tf

            where = sys.modules["tensorflow.python.eager.context"].context().device_name[-5:]
            found.extend([tf.distribute.has_strategy(), where])

    found = []
    return [placement_error(mirrors), *found]


def keras_on_jax(only=None):
    os.environ["KERAS_BACKEND"] = "jax"

    def made():
        weight = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).variables[0]
        return str(get("jax").device_of(weight.value.device))

    with on_gpu("cpu:2", only=only):
        import keras

        found = [made()]
    globals()["keras"] = keras  # which `keras_in` names
    found.append(made())
    with on_gpu("cpu:1") as device:
        found.append(made())
    with keras.device(device):
        found.append(made())
    return [*found, placement_error(keras_in, "cpu:0,cpu:1", mirror=True)]


@pytest.mark.nightly  # mirrored blocks are in test_frameworks, refused imports in test_blocks
def test_mirrored(run: Runner) -> None:
    assert run(mirrored) == ["cpu and cpu:9 cannot be used: TensorFlow has cpu:0.", False, ""]
    assert run(mirrored, "or_cpu") == [None, False, "CPU:0"]


@pytest.mark.parametrize("only", [None, pytest.param("keras", marks=pytest.mark.nightly)])
def test_keras_on_jax(run: Runner, only: str | None) -> None:
    where = ["cpu:2", "cpu", "cpu:1", "cpu:1"]
    where.append("cpu and cpu:1 cannot be used: --mirror is TensorFlow's, but Keras runs on jax.")
    assert run(keras_on_jax, only) == where


@pytest.mark.nightly
def test_keras_on_numpy(run: Runner) -> None:
    why = "cuda:0 cannot be used: Keras runs on its numpy backend, which has no GPU."
    assert run(keras_on, "numpy", "cpu", "0") == [None, why]
