"""`gpu_magic.on_gpu` with real frameworks on real devices that are not GPUs, each program in a process of its own.

PyTorch has a pretend accelerator of four devices, TensorFlow and JAX four logical CPUs, CuPy a stand-in. What
is asked is always the frameworks' own answer: the device of something that was made.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import torch_build

if TYPE_CHECKING:
    from tests.programs.runner import Runner

TORCH, TORCH_HAS_CUDA = torch_build()
TORCH_WITHOUT_CUDA = "PyTorch sees no GPU" if TORCH_HAS_CUDA else f"PyTorch {TORCH} is built without CUDA"
TENSORFLOW_WITHOUT_CUDA = f"TensorFlow {version('tensorflow-cpu')} is built without CUDA"
JAX_WITHOUT_GPU = f"JAX {version('jax')} has no GPU here"
FOUR = "cpu:0, cpu:1, cpu:2 and cpu:3"
JAX_CPU = [f"{{CpuDevice(id={index})}}" for index in range(4)]
OUTSIDE = ["cpu", 0, "cpu"]
NONE = ["cpu", 0, "CPU:0", JAX_CPU[0]]
IN_BLOCKS = [[f"pretend:{index}", index, f"CPU:{index}", JAX_CPU[index]] for index in range(4)]
INSIDES = "TensorFlow can't be set to {}: tensorflow.python.eager.context.Context._set_device is not there."
OF_JAX = [
    *("cpu:2", "cpu", "cpu:1", "cpu:1"),
    "cpu and cpu:1 can't be used: --mirror is TensorFlow's, and Keras runs on jax.",
]

# What runs, with its arguments, and what it finds.
FOUND: dict[str, Any] = {
    "on_gpu_torch.default_and_current_device": [
        *(["pretend:2", 2, "pretend:2"], "pretend:2", "pretend:2"),
        *(["pretend:1", 1, "pretend:1"], ["cpu", 2, "cpu"], ["pretend:2", 2, "pretend:2"]),
        *("cpu", "cpu", "pretend:2", OUTSIDE),  # of tensors that are made from others
    ],
    "on_gpu_torch.loaders": [
        "Expected a 'pretend' device type for generator but found 'cpu'",
        *(2, True, "cpu", "pretend:1", "pretend:1", True),
    ],
    "on_gpu_torch.training": [[["pretend:3"], *[["pretend:1"]] * 8, ["pretend:3"]], ["cpu", "pretend:3"]],
    "on_gpu_torch.compiled": ["pretend:1", "pretend:2", "cpu", None],
    "on_gpu_torch.states_that_differ_afterwards": [],
    "on_gpu_torch.several_contexts": [*[["pretend:2", True]] * 4, ["cpu", 0], ["cpu", 0], 1],
    "on_gpu_torch.refused": [
        "cuda:4 can't be used: PyTorch sees pretend:0, pretend:1, pretend:2 and pretend:3.",
        f"xpu:0 can't be used: PyTorch {TORCH} has no xpu.",
        f"cuda:1 can't be used: PyTorch {TORCH} is too old for it: 2.8 is needed.",
        *("cpu", ["cpu", 0]),
    ],
    "on_gpu_torch.keras": ["pretend:2", "torch", True, False, "pretend:1", "cpu", "cpu"],
    "on_gpu_torch.generators": [
        *([], "pretend:1", True, "pretend:1", True, "cpu"),
        *("Expected a 'pretend' device type", [0, 0, 0]),
    ],
    "on_gpu_frameworks.tensorflow": {
        "started by unrelated blocks": [False, False],
        "mirrored": 2,
        "inside": ["/CPU:2", "CPU:2", "CPU:2", "CPU:2", "CPU:1", "CPU:2", "CPU:0", "CPU:2"],
        "outside": "CPU:0",
    },
    "on_gpu_frameworks.mirrored": [
        *[2, ["CPU:1", "CPU:3"]] * 2,  # in two blocks; or on one CPU; then in a block, and beside it
        *(False, "CPU:0"),
        *(["CPU:1", "CPU:3"], [False, "CPU:0"], False, "CPU:0"),
    ],
    "on_gpu_frameworks.names_of_gpus": ["cuda:1", "cuda:1"],
    "on_gpu_frameworks.of_jax": ["cpu:2", *[JAX_CPU[2]] * 4, JAX_CPU[0], JAX_CPU[0]],
    "on_gpu_frameworks.of_cupy": ["<CUDA Device 3>", 3, 3, 0, 1, 2, 3, 0, 0, "gpu"],
    "on_gpu_frameworks.refused": [
        f"cpu:4 can't be used: TensorFlow has {FOUR}.",
        f"cpu:4 can't be used: JAX has {FOUR}.",
        f"cpu:4 can't be used: TensorFlow has {FOUR}.",
        f"cuda:0 can't be used: {TENSORFLOW_WITHOUT_CUDA}.",
        f"cuda:0 can't be used: {JAX_WITHOUT_GPU}.",
        f"cuda:1 can't be used: {JAX_WITHOUT_GPU}.",
        "cuda:4 can't be used: CuPy sees cuda:0, cuda:1, cuda:2 and cuda:3.",
        "cpu and cpu:1 can't be used: --mirror is for TensorFlow, which --only jax,torch leaves out.",
        f"cpu and cpu:9 can't be used: TensorFlow has {FOUR}.",
        "cuda:0 can't be used: CuPy can't use CUDA here",
    ],
    # Its own soft placement would fall back in silence: the names of the block say nothing of TensorFlow.
    "on_gpu_frameworks.tensorflow_used_twice": [
        f"TensorFlow was used here and ran on the CPU, not on cuda:1: {TENSORFLOW_WITHOUT_CUDA}.",
        *("InvalidArgumentError", True, ["pretend:1", "pretend:1"], "CPU:0"),
    ],
    "on_gpu_frameworks.tensorflow_beside": "CPU:0",
    "on_gpu_frameworks.other_insides": [
        *("pretend:1", "pretend:1", f"{INSIDES.format('cpu')} --only torch leaves the others out."),
        [f"{INSIDES.format('cuda:1')} It is left out; code that uses it does not run in a block."],
        *("cpu", 0),
    ],
    "on_gpu_frameworks.jax_started_by_a_block": [
        *(["pretend:0", False], ["pretend:2", False]),
        # It can't be told of its fourth device before it starts.
        "This is to run on cpu:3, and JAX could not: only its first device can be named before it starts. It has "
        "started now: run it again.",
        *(JAX_CPU[3], JAX_CPU[0]),
        f"This is to run on cuda:0, and JAX could not: {JAX_WITHOUT_GPU}.",
    ],
    "on_gpu_frameworks.jax_started_on_a_gpu": "Unknown backend: 'gpu'",
    "on_gpu_frameworks.left_open": ["CPU:0", "CPU:0", JAX_CPU[1], JAX_CPU[0], JAX_CPU[3]],
    "on_gpu_first_imports.jax_and_tensorflow": [
        *(JAX_CPU[2], JAX_CPU[2], JAX_CPU[0]),
        *["cpu:3 can't be used: TensorFlow has cpu:0."] * 2,  # in the block that imports Keras, and the next
    ],
    "on_gpu_first_imports.mirrored": ["cpu and cpu:9 can't be used: TensorFlow has cpu:0.", False, ""],
    "on_gpu_first_imports.mirrored or_cpu": [None, False, "CPU:0"],
    "on_gpu_first_imports.torch_without_cuda": [
        f"cuda:0 can't be used: {TORCH_WITHOUT_CUDA}.",
        *[f"This is to run on cuda:0, and {TORCH_WITHOUT_CUDA}."] * 2,
        *([0, 0], "cpu", 0),
    ],
    "on_gpu_first_imports.jax_through_a_package": [JAX_CPU[2], JAX_CPU[0]],
    "on_gpu_first_imports.keras_on numpy cpu 0": [
        None,
        "cuda:0 can't be used: Keras runs on its numpy backend, which has no GPU.",
    ],
    "on_gpu_first_imports.keras_on_jax": OF_JAX,
    "on_gpu_first_imports.keras_on_jax keras": OF_JAX,
    # Notebooks in the manner of public guides, cell by cell under `%%on_gpu`; they need no network.
    "on_gpu_frameworks.guide torch_images 1": {"value": "pretend:1", "left": []},
    "on_gpu_frameworks.guide torch_text 1": {"value": "pretend:1", "left": []},
    "on_gpu_frameworks.guide tensorflow_keras cpu:2": {"value": "CPU:2", "left": []},
    "on_gpu_frameworks.guide jax_training cpu:2": {"value": JAX_CPU[2], "left": []},
    "on_gpu_frameworks.guide flax_model cpu:2": {"value": JAX_CPU[2], "left": []},
    "on_gpu_frameworks.guide equinox_model cpu:2": {"value": JAX_CPU[2], "left": []},
}


@pytest.mark.parametrize("program", FOUND)
def test_it_runs_there_or_is_refused_and_nothing_is_left_behind(run: Runner, program: str) -> None:
    assert run(*program.split()) == FOUND[program]


def test_threads_are_told_apart_in_a_process_that_ends_as_any_other(run: Runner) -> None:
    found = run.to_the_end("on_gpu_frameworks.blocks_in_threads")
    assert found == [*IN_BLOCKS[1:3], NONE, IN_BLOCKS[3], IN_BLOCKS[1], NONE, NONE]
