"""`gpu_magic.to_gpu` with JAX, TensorFlow, CuPy's stand-in and NumPy; what they say of where things are."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.programs.runner import Runner


# JAX


def test_a_pytree_and_all_that_it_holds(run: Runner) -> None:
    assert run("moving_jax.pytree") == {
        "are the same": [True, True],
        "devices": {"array": "{CpuDevice(id=2)}", "key": "{CpuDevice(id=2)}"},
        "devices before": {"array": "{CpuDevice(id=0)}", "key": "{CpuDevice(id=0)}"},
        "type is as weak": True,
        "is the new array": [True, True, True, True],
        "name": "m",
        "type": "Custom",
        "structure is equal": True,
    }


def test_a_donated_array_has_no_data_to_move(run: Runner) -> None:
    assert run("moving_jax.donated") == (
        "A JAX array of shape (3,) was donated, and deleted by that: it has no data to move."
    )


def test_jax_without_a_gpu_is_refused(run: Runner) -> None:
    assert run("moving_jax.no_gpu") == f"cuda:0 can't be used: JAX {version('jax')} has no GPU here."


def test_a_numpy_array_becomes_jax_s(run: Runner) -> None:
    assert run("moving_jax.from_numpy") == "{CpuDevice(id=1)}"


# TensorFlow and Keras


def test_tensorflow_s_tensors_of_all_kinds(run: Runner) -> None:
    assert run("moving_tensorflow.tensors") == {
        "tensor": "CPU:3",
        "one thing is one": True,
        "before": "CPU:0",
        "text": "CPU:0",
        "ragged": ["RaggedTensor", "CPU:3"],
        "ragged values": [[1], [2, 3]],
        "sparse": ["SparseTensor", "CPU:3"],
    }


def test_a_tensorflow_variable_is_refused(run: Runner) -> None:
    assert run("moving_tensorflow.variable") == (
        "TensorFlow can't move a tf.Variable: create it again in a cell with %%on_gpu, and assign to it."
    )


def test_a_keras_layer_is_refused(run: Runner) -> None:
    assert run("moving_tensorflow.keras_layer") == (
        "Keras can't move its own objects (Dense): create it again in a cell with %%on_gpu, then "
        "new.set_weights(old.get_weights())."
    )


def test_a_keras_model_that_is_there_already_is_not_refused(run: Runner) -> None:
    assert run("moving_tensorflow.keras_model_that_is_there") is True


def test_tensorflow_without_cuda_is_refused(run: Runner) -> None:
    assert run("moving_tensorflow.no_gpu") == (
        f"cuda:1 can't be used: TensorFlow {version('tensorflow-cpu')} is built without CUDA."
    )


def test_keras_on_pytorch_is_refused_too(run: Runner) -> None:
    """Its layers are PyTorch's modules, but go back to Keras' own device when they are used."""
    error = run("moving_keras_on_torch.layer", KERAS_BACKEND="torch")
    assert error.startswith("Keras can't move its own objects (Dense): ")


# CuPy and NumPy


def test_cupy_arrays_keep_their_views(run: Runner) -> None:
    assert run("moving_cupy.views") == {
        "devices": [2, 2],
        "one thing is one": True,
        "view is of it": True,
        "offset": 16,
        "numbers": [1, 1],
        "before": 0,
        "on the CPU": "ndarray",
    }


def test_a_numpy_array_becomes_cupy_s(run: Runner) -> None:
    assert run("moving_cupy.from_numpy") == 1


def test_numpy_stays_beside_tensors(run: Runner) -> None:
    assert run("moving_numpy.left_alone") == {
        "array is the same": True,
        "tensor": "pretend:0",
        "in an object array": "pretend:0",
    }


def test_numpy_becomes_pytorch_s_if_it_is_asked_for(run: Runner) -> None:
    assert run("moving_numpy.converted") == {"array": "pretend:0", "row": [3, 4, 5], "names": "ndarray"}


def test_numpy_becomes_pytorch_s_on_the_cpu_too(run: Runner) -> None:
    assert run("moving_numpy.converted_on_the_cpu") == "cpu"


def test_a_dry_run_for_numpy_s_arrays_does_not_start_the_framework_to_ask_it(run: Runner) -> None:
    no_gpu = f"cuda:0 can't be used: JAX {version('jax')} has no GPU here."
    assert run("moving_jax.dry_run_for_numpy", False) == {
        "dry run": None,
        "started by the dry run": False,
        "move": f"{no_gpu} Nothing was changed.",
        "started by the move": True,
    }


def test_a_dry_run_for_numpy_s_arrays_asks_a_framework_that_has_started(run: Runner) -> None:
    found = run("moving_jax.dry_run_for_numpy", True)
    assert (
        found["dry run"] == found["move"] == f"a: cuda:0 can't be used: JAX {version('jax')} has no GPU here."
    )


def test_numpy_beside_what_another_variable_has_as_well_stays(run: Runner) -> None:
    assert run("moving_numpy.beside_a_tensor_of_another_variable") == {
        "error": None,
        "is the same": True,
        "device": "pretend:0",
    }


def test_numpy_alone_is_refused_if_it_is_not_asked_for(run: Runner) -> None:
    assert run("moving_numpy.not_converted") == (
        "it is a NumPy array, which has no device: --numpy torch (or numpy='torch') makes it a PyTorch tensor there; jax and "
        "cupy work, too."
    )


@pytest.mark.parametrize(
    ("framework", "error"),
    [
        ("pandas", "NumPy's arrays can become those of torch or jax or cupy, and not of pandas."),
        ("jax", "NumPy's arrays can't become JAX's before it is imported: import jax."),
    ],
)
def test_numpy_becomes_only_what_can_be_moved_and_is_imported(
    run: Runner, framework: str, error: str
) -> None:
    assert run("moving_numpy.converted_to", framework) == error


# Several at once


@pytest.mark.parametrize(
    "program",
    [
        "moving_torch.views",
        "moving_torch.lstm",
        "moving_jax.pytree",
        "moving_tensorflow.tensors",
        "moving_all.several",
    ],
)
def test_a_process_that_has_moved_things_ends_as_any_other(run: Runner, program: str) -> None:
    assert run.to_the_end(program)


def test_several_frameworks_in_one_object(run: Runner) -> None:
    """None of them goes to a GPU that only PyTorch has."""
    assert run("moving_all.several") == {
        "on the CPU": ["cpu", "{CpuDevice(id=0)}", "CPU:0"],
        "error": f"cuda:0 can't be used: TensorFlow {version('tensorflow-cpu')} is built without CUDA.",
        "after the error": "cpu",
    }
