"""`gpu_magic.devices_of`: where real frameworks' variables live; each program in a process of its own."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.programs.runner import Runner

MODEL = 4 * (10 * 10 + 10 + 10)  # bytes: two layers with one weight


# PyTorch


def test_tensors_and_what_shares_their_memory(run: Runner) -> None:
    assert run("devices_of_torch.tensors") == {
        "one": {"pretend:1": 40},
        "views": {"pretend:1": 40},
        "sparse and meta": {"cpu": 80, "meta": 8},
        "a class": {},
        "lazy": 0,
    }


def test_it_is_shown_in_words(run: Runner) -> None:
    assert run("devices_of_torch.shown") == {"nested": "pretend:1: 40 bytes", "nothing": "No arrays."}


def test_a_model_with_tied_weights_and_a_buffer(run: Runner) -> None:
    found = run("devices_of_torch.model")
    assert list(found.items()) == [("cpu", 12), ("pretend:2", MODEL)]


def test_an_optimizer_has_its_parameters_and_their_gradients(run: Runner) -> None:
    assert run("devices_of_torch.optimizer")["pretend:2"] == 4 * MODEL


def test_a_list_that_holds_itself(run: Runner) -> None:
    assert run("devices_of_torch.loop") == {"pretend:1": 40}


def test_the_user_s_own_objects_are_looked_into(run: Runner) -> None:
    assert run("devices_of_torch.trainer") == {"cpu": 12, "pretend:2": MODEL}


def test_containers_of_all_kinds_are_looked_into(run: Runner) -> None:
    found = run("devices_of_torch.containers")
    assert len(found) == 13
    assert found == dict.fromkeys(found, 40)


# TensorFlow and Keras


def test_tensorflow_s_tensors_and_variables(run: Runner) -> None:
    assert run("devices_of_tensorflow.tensors") == {"tensor": {"cpu:2": 40}, "variable": {"cpu:2": 40}}


def test_a_keras_model(run: Runner) -> None:
    assert run("devices_of_tensorflow.keras_model") == {"cpu:2": 40}


def test_a_mirrored_variable_is_on_each_device(run: Runner) -> None:
    assert run("devices_of_tensorflow.mirrored_variable") == {"cpu": 16, "cpu:1": 16}


def test_sparse_and_ragged_tensors(run: Runner) -> None:
    assert run("devices_of_tensorflow.composite_tensors") == {"cpu": 72}


def test_a_tensorflow_module(run: Runner) -> None:
    assert run("devices_of_tensorflow.module") == {"cpu": 4}


# JAX, NumPy, CuPy


def test_a_sharded_array_is_on_each_of_its_devices(run: Runner) -> None:
    assert run("devices_of_jax.sharded") == {
        "split": {"cpu": 16, "cpu:1": 16},
        "replicated": {"cpu": 32, "cpu:1": 32},
    }


def test_jax_arrays_and_keys(run: Runner) -> None:
    assert run("devices_of_jax.tree") == {"cpu": 16}


def test_a_traced_array_is_none(run: Runner) -> None:
    assert run("devices_of_jax.traced") == ["No arrays."]


def test_a_deleted_array_takes_nothing(run: Runner) -> None:
    assert run("devices_of_jax.deleted") == {}


def test_a_pytree_of_another_package_is_looked_into(run: Runner) -> None:
    assert run("devices_of_jax.pytree_of_another_package") == {"cpu": 16}


def test_numpy_arrays(run: Runner) -> None:
    assert run("devices_of_jax.numpy_arrays") == {
        "views": {"cpu": 800},
        "shown": "the CPU: 8.0 MiB in 2 arrays",
    }


def test_cupy_arrays(run: Runner) -> None:
    assert run("devices_of_cupy.arrays") == {"views": {"cuda:3": 80}, "shown": "cuda:3: 80 bytes"}


# Across frameworks


def test_memory_that_numpy_and_pytorch_share_is_counted_once(run: Runner) -> None:
    assert run("devices_of_shared_memory.numpy_and_torch") == {"all": {"cpu": 8000}, "back": {"cpu": 8000}}


def test_memory_that_jax_and_numpy_share_is_counted_once(run: Runner) -> None:
    assert run("devices_of_shared_memory.jax_and_numpy") == {"cpu": 4000}


def test_an_array_that_repeats_its_memory_takes_no_more_than_that(run: Runner) -> None:
    assert run("devices_of_shared_memory.strided") == {"cpu": 8}


def test_odd_objects_are_passed_over(run: Runner) -> None:
    found = run("devices_of_odd_objects.beside_a_tensor")
    assert len(found["devices"]) == 10
    assert all(devices == {"cpu": 4} for devices in found["devices"].values()), found
    said = found["said"]  # of each type once
    assert len(said) == len(set(said))
    assert (
        "<class '__main__.Raising'> can't be looked into (RuntimeError): what such objects hold is left out."
        in said
    )


def test_memory_that_pytorch_does_not_count_is_said_once(run: Runner) -> None:
    assert run("devices_of_torch.uncounted") == {
        "pools": [{}, {}],
        "free": None,
        "said": [
            f"PyTorch {version('torch')} does not count its memory on pretend (module 'torch._C' has no attribute "
            "'_accelerator_getDeviceStats'): it is left out of what is shown. Update PyTorch."
        ],
    }


def test_a_jax_that_does_not_list_its_backends_is_said_once(run: Runner) -> None:
    assert run("devices_of_jax.unlisted_backends") == {
        "started": [False, False],
        "said": [
            f"JAX {version('jax')} does not list its backends: it counts as not started. Update gpu_magic."
        ],
    }
