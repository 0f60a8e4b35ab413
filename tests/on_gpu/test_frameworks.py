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
JOB = "/job:localhost/replica:0/task:0/device:CPU"
OUTSIDE = ["cpu", 0, "cpu"]
NONE = ["cpu", 0, "CPU:0", JAX_CPU[0]]
IN_BLOCKS = [[f"pretend:{index}", index, f"CPU:{index}", JAX_CPU[index]] for index in (1, 2, 3)]
INSIDES = "TensorFlow can't be set to {}: tensorflow.python.eager.context.Context._set_device is not there."

FOUND: dict[str, Any] = {
    "on_gpu_torch.default_and_current_device": [
        ["pretend:2", 2, "pretend:2"],
        "pretend:2",
        "pretend:2",
        ["pretend:1", 1, "pretend:1"],
        ["cpu", 2, "cpu"],
        ["pretend:2", 2, "pretend:2"],
        OUTSIDE,
    ],
    "on_gpu_torch.device_names": ["pretend:3"] * 7,
    "on_gpu_torch.loaders": [
        "Expected a 'pretend' device type for generator but found 'cpu'",
        *(2, True, "cpu", "pretend:1", "pretend:1", True),
    ],
    "on_gpu_torch.made_from_others": ["cpu", "cpu"],
    "on_gpu_torch.training": [["pretend:3"], ["pretend:1"], ["pretend:3"]],
    "on_gpu_torch.step_counts": ["cpu", "pretend:1"],
    "on_gpu_torch.compiled": ["pretend:3", "pretend:1", "pretend:3", "cpu"],
    "on_gpu_torch.compiled_in_threads": ["pretend:1", "pretend:2", "cpu", None],
    "on_gpu_torch.states_that_differ_afterwards": [],
    "on_gpu_torch.within_several_contexts": [*[["pretend:2", True]] * 4, ["cpu", 0]],
    "on_gpu_torch.mode_left_open": [["cpu", 0], ["cpu", 0], 1],
    "on_gpu_torch.refused": [
        "cuda:4 can't be used: PyTorch sees pretend:0, pretend:1, pretend:2 and pretend:3.",
        f"xpu:0 can't be used: PyTorch {TORCH} has no xpu.",
        f"cuda:1 can't be used: PyTorch {TORCH} is too old for it: 2.8 is needed.",
        *("cpu", ["cpu", 0]),
    ],
    "on_gpu_torch.keras_imported_inside": ["pretend:2", "torch", True, False],
    "on_gpu_torch.numbers": [[], "pretend:1"],
    "on_gpu_torch.generators": [
        True,
        "pretend:1",
        "cpu",
        True,
        "Expected a 'pretend' device type",
        [0, 0, 0],
    ],
    "on_gpu_frameworks.tensorflow": {
        "started by an unrelated block": False,
        "mirrored": 2,
        "inside": ["/CPU:2", "CPU:2", "CPU:2", "CPU:2", "CPU:1", "CPU:2", "CPU:0", "CPU:2"],
        "outside": "CPU:0",
    },
    "on_gpu_frameworks.mirrored": [
        *(2, ["CPU:1", "CPU:3"], ["CPU:1", "CPU:3"], False, "CPU:0"),
        *(["CPU:1", "CPU:3"], [False, "CPU:0"]),  # in a block, and beside it
    ],
    "on_gpu_frameworks.names_of_gpus": ["cuda:1", "cuda:1"],
    "on_gpu_frameworks.of_jax": ["cpu:2", *[JAX_CPU[2]] * 4, JAX_CPU[0], JAX_CPU[0]],
    "on_gpu_frameworks.of_cupy": ["<CUDA Device 3>", 3, 3, 0, 1, 2, 3, 0],
    "on_gpu_frameworks.refused": {
        "tensorflow's cpu:4": f"cpu:4 can't be used: TensorFlow has {FOUR}.",
        "tensorflow's gpu": f"cuda:0 can't be used: {TENSORFLOW_WITHOUT_CUDA}.",
        "keras's": f"cpu:4 can't be used: TensorFlow has {FOUR}.",
        "jax's cpu:4": f"cpu:4 can't be used: JAX has {FOUR}.",
        "jax's gpu": f"cuda:0 can't be used: {JAX_WITHOUT_GPU}.",
        "jax's behind a decorator": f"cuda:1 can't be used: {JAX_WITHOUT_GPU}.",
        "cupy's": "cuda:4 can't be used: CuPy sees cuda:0, cuda:1, cuda:2 and cuda:3.",
        "no mirror": "cpu and cpu:1 can't be used: mirror=True is for TensorFlow, which only='jax,torch' leaves out.",
        "mirrored": f"cpu and cpu:9 can't be used: TensorFlow has {FOUR}.",
    },
    # Its own soft placement would fall back in silence: the names of the block say nothing of TensorFlow.
    "on_gpu_frameworks.tensorflow_used_twice": [
        f"TensorFlow was used here and ran on the CPU, not on cuda:1: {TENSORFLOW_WITHOUT_CUDA}.",
        *("InvalidArgumentError", True, ["pretend:1", "pretend:1"], "CPU:0"),
    ],
    "on_gpu_frameworks.tensorflow_beside": "CPU:0",
    "on_gpu_frameworks.other_insides": [
        *("pretend:1", "pretend:1", f"{INSIDES.format('cpu')} only='torch' leaves the others out."),
        [f"{INSIDES.format('cuda:1')} It is left out; code that uses it does not run in a block."],
        *("cpu", 0),
    ],
    "on_gpu_frameworks.jax_started_by_a_block": [
        ["pretend:0", False],
        ["pretend:2", False],
        # It can't be told of its fourth device before it starts.
        "This is to run on cpu:3, and JAX could not: only its first device can be named before it starts. It has "
        "started now: run it again.",
        *(JAX_CPU[3], JAX_CPU[0]),
        f"This is to run on cuda:0, and JAX could not: {JAX_WITHOUT_GPU}.",
    ],
    "on_gpu_frameworks.jax_started_on_a_gpu": "Unknown backend: 'gpu'",
    "on_gpu_frameworks.cupy_on_the_first_gpu": [0, "gpu"],
    "on_gpu_frameworks.mere_words": ["pretend:1"] * 4,
    "on_gpu_frameworks.overlapping_tasks": NONE[:3],
    "on_gpu_frameworks.suspended_generator": OUTSIDE,
    "on_gpu_frameworks.tensorflow_device_left_open": ["CPU:0", "CPU:0"],
    "on_gpu_frameworks.jax_configured": [JAX_CPU[1], JAX_CPU[0], JAX_CPU[3]],
    "on_gpu_first_imports.jax_and_tensorflow": [JAX_CPU[2], JAX_CPU[2], "CPU:0", JAX_CPU[0]],
}
ARGUMENTS = {"on_gpu_torch.training": (3, 1, 3), "on_gpu_torch.compiled": (3, 1, 3)}


@pytest.mark.parametrize("program", FOUND)
def test_it_runs_there_or_is_refused_and_nothing_is_left_behind(run: Runner, program: str) -> None:
    assert run(program, *ARGUMENTS.get(program, ())) == FOUND[program]


def test_threads_are_told_apart_in_a_process_that_ends_as_any_other(run: Runner) -> None:
    found = run.to_the_end("on_gpu_frameworks.blocks_in_threads")
    assert found == [IN_BLOCKS, [IN_BLOCKS[0], NONE, NONE], NONE]


GUIDES = {
    "torch_images": ("1", "pretend:1"),
    "torch_text": ("1", "pretend:1"),
    "tensorflow_keras": ("cpu:2", "CPU:2"),
    "jax_training": ("cpu:2", JAX_CPU[2]),
    "flax_model": ("cpu:2", JAX_CPU[2]),
    "equinox_model": ("cpu:2", JAX_CPU[2]),
}


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_runs_on_the_device_and_leaves_the_default_one(run: Runner, guide: str) -> None:
    """Notebooks in the manner of public guides, cell by cell under `%%on_gpu`; they need no network."""
    device, made_on = GUIDES[guide]
    assert run("on_gpu_frameworks.guide", guide, device) == {"value": made_on, "left": []}


def test_pytorch_without_cuda_never_falls_back(run: Runner) -> None:
    hidden = f"This is to run on cuda:0, and {TORCH_WITHOUT_CUDA}."
    assert run("on_gpu_torch_without_cuda.refused", TORCH_DEVICE_BACKEND_AUTOLOAD="0") == [
        *(f"cuda:0 can't be used: {TORCH_WITHOUT_CUDA}.", hidden, hidden, [0, 0], "cpu")
    ]


def test_cupy_that_can_t_use_cuda_is_refused(run: Runner) -> None:
    error = run("on_gpu_cupy.refused", CUPY_STANDIN_BROKEN="1")
    assert error.startswith("cuda:0 can't be used: CuPy can't use CUDA here (cudaErrorNoDevice")


@pytest.mark.parametrize(
    ("backend", "devices", "made_on"),
    [
        ("tensorflow", ["cpu:1", "cpu:2"], [f"{JOB}:1", f"{JOB}:2", f"{JOB}:0"]),
        ("jax", ["cpu:1", "cpu:2"], ["cpu:1", "cpu:2", "cpu:0"]),
        ("torch", [1, "cpu"], ["pretend:1", "cpu", "cpu"]),
    ],
)
def test_keras_has_a_device_for_each_thread(
    run: Runner, backend: str, devices: list[Any], made_on: list[str]
) -> None:
    found = run("on_gpu_keras.places", *devices, KERAS_BACKEND=backend)
    assert found == [*made_on, made_on[0], made_on[-1]]
    if backend == "jax":
        mirror = "cpu and cpu:1 can't be used: mirror=True is TensorFlow's, and Keras runs on jax."
        assert run("on_gpu_keras.of_jax", KERAS_BACKEND="jax") == ["cpu:2", "cpu:2", mirror]


def test_a_keras_backend_without_gpus_is_refused(run: Runner) -> None:
    found = run("on_gpu_keras.without_gpus", KERAS_BACKEND="numpy")
    assert found == "cuda:0 can't be used: Keras runs on its numpy backend, which has no GPU."


def test_what_the_block_imports_brings_its_backend_into_use(run: Runner) -> None:
    found = run("on_gpu_first_imports.keras_inside", KERAS_BACKEND="tensorflow")
    assert found == ["cpu:3 can't be used: TensorFlow has cpu:0.", True]
    for only in (None, "keras"):
        assert run("on_gpu_first_imports.keras_on_jax", only, KERAS_BACKEND="jax") == ["cpu:2", "cpu"]
    assert run("on_gpu_first_imports.jax_through_a_package") == [JAX_CPU[2], JAX_CPU[0]]
