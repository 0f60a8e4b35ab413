"""`gpu_magic.devices_of`: where real frameworks' variables are; each program in a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import torch_build

if TYPE_CHECKING:
    from tests.programs.runner import Runner

MODEL = 4 * (10 * 10 + 10 + 10)  # bytes: two layers with one weight
CONTAINERS = (
    "deque",
    "namespace",
    "UserList",
    "UserDict",
    "partial",
    "dataclass",
    "slots",
    "module",
    "object array",
    "dataset",
    "data loader",
    "set in a tuple",
)
FOUND: dict[str, Any] = {
    "devices_of_torch.tensors": {
        "one": {"pretend:1": 40},
        "views": {"pretend:1": 40},
        "sparse and meta": {"cpu": 80, "meta": 8},
        "a class": {},
        "lazy": 0,
    },
    "devices_of_torch.shown": {"nested": "pretend:1: 40 bytes", "nothing": "No arrays."},
    "devices_of_torch.model": {"cpu": 12, "pretend:2": MODEL},
    "devices_of_torch.optimizer": {"cpu": 12, "pretend:2": 4 * MODEL},
    "devices_of_torch.loop": {"pretend:1": 40},
    "devices_of_torch.trainer": {"cpu": 12, "pretend:2": MODEL},
    "devices_of_torch.containers": dict.fromkeys(CONTAINERS, 40),
    "devices_of_tensorflow.tensors": {"tensor": {"cpu:2": 40}, "variable": {"cpu:2": 40}},
    "devices_of_tensorflow.keras_model": {"cpu:2": 40},
    "devices_of_tensorflow.mirrored_variable": {"cpu": 16, "cpu:1": 16},
    "devices_of_tensorflow.composite_tensors": {"cpu": 72},
    "devices_of_tensorflow.module": {"cpu": 4},
    "devices_of_jax.sharded": {
        "split": {"cpu": 16, "cpu:1": 16},
        "replicated": {"cpu": 32, "cpu:1": 32},
    },
    "devices_of_jax.tree": {"cpu": 16},
    "devices_of_jax.traced": ["No arrays."],
    "devices_of_jax.deleted": {},
    "devices_of_jax.pytree_of_another_package": {"cpu": 16},
    "devices_of_jax.numpy_arrays": {"views": {"cpu": 800}, "shown": "the CPU: 8.0 MiB in 2 arrays"},
    "devices_of_cupy.arrays": {"views": {"cuda:3": 80}, "shown": "cuda:3: 80 bytes"},
    "devices_of_shared_memory.numpy_and_torch": {"all": {"cpu": 8000}, "back": {"cpu": 8000}},
    "devices_of_shared_memory.jax_and_numpy": {"cpu": 4000},
    "devices_of_shared_memory.strided": {"cpu": 8},
    "devices_of_torch.saved_errors": {
        "of a function": {"cpu": 8 + 4},
        "that led to it": {"cpu": 12 + 4},
        "with an attribute": {"cpu": 16 + 4 + 8},
        "in a group": {"cpu": 28 + 4},
    },
    "devices_of_torch.error_of_a_cell": {},
}


@pytest.mark.parametrize("program", FOUND)
def test_memory_is_found_once_and_where_it_is(run: Runner, program: str) -> None:
    assert run(program) == FOUND[program]


def test_odd_objects_are_passed_over(run: Runner) -> None:
    found = run("devices_of_odd_objects.beside_a_tensor")
    assert len(found["devices"]) == 10
    assert all(devices == {"cpu": 4} for devices in found["devices"].values()), found
    said = found["said"]  # of each type once
    assert len(said) == len(set(said))
    assert any("Raising'> can't be looked into (RuntimeError)" in one for one in said)


def test_memory_that_pytorch_does_not_count_is_said_once(run: Runner) -> None:
    found = run("devices_of_torch.uncounted")
    (said,) = found.pop("said")
    assert found == {"pools": [{}, {}], "free": None}
    assert said.startswith(f"PyTorch {torch_build()[0]} does not count its memory on pretend (")


def test_a_jax_that_does_not_list_its_backends_is_said_once(run: Runner) -> None:
    found = run("devices_of_jax.unlisted_backends")
    assert found["started"] == [False, False]
    assert len(found["said"]) == 1


def test_a_table_of_plain_values_is_not_walked_object_by_object(run: Runner) -> None:
    assert set(run("devices_of_torch.visited").values()) == {1}


def test_an_array_among_plain_values_is_found(run: Runner) -> None:
    assert run("devices_of_torch.array_among_plain_values") == [1] * 9
