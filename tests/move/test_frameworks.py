"""`gpu_magic.to_gpu` with JAX, TensorFlow, Keras and CuPy's stand-in, and with several frameworks at once."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.programs.runner import Runner

NO_DEVICE = "cuda:9 can't be used: PyTorch sees pretend:0, pretend:1, pretend:2 and pretend:3."
NO_CUDA = f"cuda:0 can't be used: TensorFlow {version('tensorflow-cpu')} is built without CUDA."
NO_GPU = f"cuda:0 can't be used: JAX {version('jax')} has no GPU here."
AGAIN = "create it again in a cell with %%on_gpu"
KERAS = f"Keras can't move its own objects (Dense): {AGAIN}, then new.set_weights(old.get_weights())."
VARIABLE = f"TensorFlow can't move a tf.Variable: {AGAIN}, and assign to it."
CPU = "Moving to the CPU: "
FOUND: dict[str, Any] = {
    "pytree": {
        "kept": [True, True, True, 7, "m"],
        "devices": ["{CpuDevice(id=2)}", "{CpuDevice(id=2)}", "{CpuDevice(id=0)}"],
        "one is one": [True] * 4,
        "structure": [True, True],
    },
    "tensors": [
        [
            "CPU:0",
            "CPU:3",
            "CPU:0",
            "CPU:3",
            "CPU:3",
        ],  # the original, the new one, text, which stays, and composite ones
        True,
        "RaggedTensor",
        [[1], [2, 3]],
        "SparseTensor",
    ],
    "cupy_arrays": [
        [
            "x     ndarray (6,): 1 array  48 bytes  cuda:0 → cuda:2",
            "part  ndarray (2,): 1 array   0 bytes  cuda:0 → cuda:2",
            "56 bytes would move to cuda:2, where 1000 bytes are free. Nothing was changed.",
        ],
        [0, 2, 2],
        True,
        True,
        [1, 1],
        "ndarray",
    ],
    "from_numpy": ["{CpuDevice(id=1)}", 1],
    "tensors_beside_jax": [[True] * 6, ["Tensor", "str", "str", "str"], ["pretend:0"]],
    "refused": {
        "donated": "A JAX array of shape (3,) was donated, and deleted by that: it has no data to move.",
        "more bits": "JAX would make float32 of float64, as jax_enable_x64 is not set: convert it yourself, with "
        '.astype("float32").',
        "jax": NO_GPU,
        "tensorflow": NO_CUDA.replace("cuda:0", "cuda:1"),
        "variable": VARIABLE,
        "keras": KERAS,
        "keras on torch": KERAS,
        "keras, there already": None,
    },
    "or_cpu": {
        "there": [["pretend:1"], ""],
        "not there": [["cpu", "cpu"], f"{CPU}{NO_DEVICE}\n"],
        "not seen": ["cpu"],
        "one has none": [["cpu", "CPU:0"], f"{CPU}{NO_CUDA}\n"],
        "numpy": [["cpu:0"], f"{CPU}{NO_GPU}\n"],
        "all, of which one can": [
            [
                "x  Tensor (2,): 1 array  8 bytes  cpu → pretend:0",
                "y  Tensor (2,)                    shared with x",
                "8 bytes moved to pretend:0.",
                f"t stays: {NO_CUDA}",
                f"v stays: {VARIABLE}",
            ],
            "",
            "CPU:0",
        ],
        "all": [
            ["t  EagerTensor    on cpu already", "All of it is on the CPU already."],
            f"{CPU}t: {NO_CUDA}\n",
            "CPU:0",
        ],
        "no device": "'nowhere' is not a device",
    },
}


@pytest.mark.parametrize("case", FOUND)
def test_it_is_moved_or_refused(run: Runner, case: str) -> None:
    assert run(f"moving_frameworks.{case}") == FOUND[case]


@pytest.mark.parametrize("is_started", [False, True])
def test_a_dry_run_starts_no_framework_to_ask_it(run: Runner, is_started: bool) -> None:
    dry_run = f"a: {NO_GPU}" if is_started else None
    assert run("moving_frameworks.dry_run_for_numpy", is_started) == [
        dry_run,
        is_started,
        f"a: {NO_GPU}",
        True,
    ]


def test_several_frameworks_in_one_object_in_a_process_that_ends_as_any_other(run: Runner) -> None:
    assert run.to_the_end("moving_frameworks.several") == [
        ["cpu", "{CpuDevice(id=0)}", "CPU:0", "cpu"],
        NO_CUDA,
        "cpu",
    ]
