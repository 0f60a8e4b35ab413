"""`gpu_magic.on_gpu` with real frameworks on real devices that are not GPUs, each program in a process of its own.

PyTorch has a pretend accelerator of four devices, TensorFlow and JAX four logical CPUs, CuPy a stand-in. What
is asked is always the frameworks' own answer: the device of something that was made.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.programs.runner import Runner

TORCH = version("torch") if "+" in version("torch") else f"{version('torch')}+cpu"
TORCH_WITHOUT_CUDA = f"PyTorch {TORCH} is built without CUDA"
TENSORFLOW_WITHOUT_CUDA = f"TensorFlow {version('tensorflow-cpu')} is built without CUDA"
JAX_WITHOUT_GPU = f"JAX {version('jax')} has no GPU here"
FOUR_OF_PYTORCH = "PyTorch sees pretend:0, pretend:1, pretend:2 and pretend:3"
FOUR_OF_TENSORFLOW = "TensorFlow has cpu:0, cpu:1, cpu:2 and cpu:3"
JAX_CPU = [f"{{CpuDevice(id={index})}}" for index in range(4)]
JOB = "/job:localhost/replica:0/task:0/device:CPU"

Row = tuple[str, tuple[Any, ...], Any]


def check(run: Runner, row: Row, **environment: str) -> None:
    program, arguments, expected = row
    assert run(program, *arguments, **environment) == expected


PYTORCH: list[Row] = [
    (
        "on_gpu_torch.default_and_current_device",
        (),
        {
            "inside": ["pretend:2", 2, "pretend:2"],
            "of the accelerator": "pretend:2",
            "in an inner block": ["pretend:1", 1, "pretend:1"],
            "on the CPU in between": ["cpu", 2, "cpu"],
            "inside again": ["pretend:2", 2, "pretend:2"],
            "outside": ["cpu", 0, "cpu"],
        },
    ),
    ("on_gpu_torch.device_names", (), ["pretend:3"] * 7),
    (
        "on_gpu_torch.loaders",
        (),
        {
            "with torch.device": "Expected a 'pretend' device type for generator but found 'cpu'",
            "batches": 2,
            "is the same order": True,
            "of a worker": "cpu",
        },
    ),
    ("on_gpu_torch_sampling.trained_weight", (), {"is a leaf": True, "grad": "pretend:1"}),
    ("on_gpu_torch_sampling.device_that_is_named", (), "cpu"),
    (
        "on_gpu_torch_sampling.given_output",
        (),
        {"is the same": True, "on the device": "Expected a 'pretend' device type", "is unchanged": True},
    ),
    (
        "on_gpu_torch_sampling.pinned_loader",
        (),
        {"batches": ["pretend:1", "pretend:1"], "is the same": True},
    ),
    ("on_gpu_torch.tensors_made_from_others", (), {"from_numpy": "cpu", "zeros_like": "cpu"}),
    ("on_gpu_torch.training", (3, 1, 3), [["pretend:3"], ["pretend:1"], ["pretend:3"]]),
    # Reading a count of each parameter's on a GPU would wait for the GPU, at each step.
    ("on_gpu_torch.step_counts", (), {"optimizers": ["cpu"], "average": "pretend:1"}),
    ("on_gpu_torch.compiled", (3, 1, 3), ["pretend:3", "pretend:1", "pretend:3", "cpu"]),
    ("on_gpu_torch.compiled_in_threads", (), ["pretend:1", "pretend:2", "cpu", None]),
    ("on_gpu_torch.default_device_of_the_compiler", (), None),
    ("on_gpu_torch.states_that_differ_afterwards", (), []),
    (
        "on_gpu_torch.refused",
        (4,),
        {"error": f"cuda:4 can't be used: {FOUR_OF_PYTORCH}.", "ran": False, "after": ["cpu", 0]},
    ),
    (
        "on_gpu_torch.refused",
        ("xpu:0",),
        {"error": f"xpu:0 can't be used: PyTorch {TORCH} has no xpu.", "ran": False, "after": ["cpu", 0]},
    ),
    ("on_gpu_torch.given_device", (1,), ["pretend:1", "pretend:1"]),
    (
        "on_gpu_torch.too_old",
        (1,),
        {"error": f"cuda:1 can't be used: PyTorch {TORCH} is too old for it: 2.8 is needed.", "devices": []},
    ),
    ("on_gpu_torch.too_old", ("cpu",), {"error": None, "devices": ["cpu"]}),
]


@pytest.mark.parametrize("row", PYTORCH, ids=lambda row: row[0])
def test_pytorch(run: Runner, row: Row) -> None:
    check(run, row)


@pytest.mark.parametrize("way", ["made", "of_a_tensor", "in_place"])
def test_a_cpu_generator_gives_the_same_numbers_on_the_device(run: Runner, way: str) -> None:
    for name, found in run(f"on_gpu_torch_sampling.{way}").items():
        assert found["inside"]["device"] == "pretend:1", name
        assert found["inside"]["values"] == found["outside"]["values"], name
        assert found.get("is the same", True), name


def test_a_weighted_sampler_with_a_seed_draws_as_it_does_outside(run: Runner) -> None:
    found = run("on_gpu_torch_sampling.weighted_sampler")
    assert found["inside"] == found["outside"]


@pytest.mark.parametrize("way", ["make", "make_with_a_generator", "make_with_normal"])
def test_pytorch_without_cuda_never_falls_back(run: Runner, way: str) -> None:
    found = run("on_gpu_torch_without_cuda.named", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert found == {"error": f"cuda:0 can't be used: {TORCH_WITHOUT_CUDA}.", "ran": False}
    found = run("on_gpu_torch_without_cuda.hidden", way, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert found == {
        "error": f"This is to run on cuda:0, and {TORCH_WITHOUT_CUDA}.",
        "began on": [0],
        "after": "cpu",
    }


def test_a_pytorch_without_a_private_name_has_its_own_device_context(run: Runner) -> None:
    found = run("on_gpu_torch.without_private_names")
    assert found["inside"] == [["pretend:2", 2], ["cpu", 0], ["pretend:1", 1]]
    assert found["between"] == found["before"]
    assert found["nested"] == "pretend:1"
    (warned,) = found["warned"]
    assert "has other insides ('DeviceContext' object has no attribute 'prev_mode')" in warned


TENSORFLOW: list[Row] = [
    (
        "on_gpu_tensorflow.devices",
        (),
        {
            "tensor": "CPU:2",
            "variable": "CPU:2",
            "function": "CPU:2",
            "in an inner block": "CPU:1",
            "inside again": "CPU:2",
            "outside": "CPU:0",
        },
    ),
    (
        "on_gpu_tensorflow.refused",
        ("cpu:4",),
        {"error": f"cpu:4 can't be used: {FOUR_OF_TENSORFLOW}.", "ran": False},
    ),
    (
        "on_gpu_tensorflow.refused",
        (0,),
        {"error": f"cuda:0 can't be used: {TENSORFLOW_WITHOUT_CUDA}.", "ran": False},
    ),
    (
        "on_gpu_tensorflow.starting",
        (),
        {
            "after an unrelated block": False,
            "inside": "CPU:1",
            "after one that uses it": True,
            "outside": "CPU:0",
        },
    ),
    ("on_gpu_hidden_tensorflow.absent_beside_others", (), "CPU:0"),
    (
        "on_gpu_tensorflow.mirrored",
        (),
        {
            "in sync": 2,
            "replicas": ["CPU:1", "CPU:3"],
            "replicas in another block": ["CPU:1", "CPU:3"],
            "mirrors outside": False,
            "outside": "CPU:0",
        },
    ),
    ("on_gpu_tensorflow.mirrored_in_a_thread", (), [["CPU:1", "CPU:3"], [False, "CPU:0"]]),
    (
        "on_gpu_tensorflow.several_refused",
        ("cpu:0,cpu:1", True, "jax,torch"),
        {
            "error": "cpu and cpu:1 can't be used: mirror=True is for TensorFlow, which only='jax,torch' "
            "leaves out.",
            "ran": False,
        },
    ),
    (
        "on_gpu_tensorflow.several_refused",
        ("cpu:0,cpu:9", True),
        {"error": f"cpu and cpu:9 can't be used: {FOUR_OF_TENSORFLOW}.", "ran": False},
    ),
    ("on_gpu_tensorflow.only_keras", ("cpu:4",), f"cpu:4 can't be used: {FOUR_OF_TENSORFLOW}."),
    ("on_gpu_tensorflow.device_objects", (), {"physical": "CPU:0", "logical": "CPU:2", "several": 2}),
    # TensorFlow's GPU:0 is CUDA's second one if only that is visible to it.
    ("on_gpu_tensorflow.names_of_gpus", (), {"physical": "cuda:1", "logical": "cuda:1"}),
    ("on_gpu_tensorflow.given_device", (), ["/CPU:2", "CPU:2"]),
]


@pytest.mark.parametrize("row", TENSORFLOW, ids=lambda row: row[0])
def test_tensorflow(run: Runner, row: Row) -> None:
    check(run, row)


def test_tensorflow_that_is_used_after_all_does_not_fall_back_in_silence(run: Runner) -> None:
    """Its own soft placement would: the names of the block say nothing of TensorFlow."""
    found = run("on_gpu_hidden_tensorflow.used_twice")
    why = f"TensorFlow was used here and ran on the CPU, not on cuda:1: {TENSORFLOW_WITHOUT_CUDA}."
    assert found["first error"] == why
    kind, message = found["second error"]
    assert kind == "InvalidArgumentError"
    assert "GPU:1" in message
    assert found["made on"] == ["pretend:1", "pretend:1"]
    assert found["outside"] == "CPU:0"


def test_a_tensorflow_with_other_insides_is_left_out(run: Runner) -> None:
    """One warning says so; a block that uses it does not begin."""
    found = run("on_gpu_torch_and_tensorflow.other_insides")
    why = "TensorFlow can't be set to {}: AttributeError: 'Context' object has no attribute '_set_device'."
    assert found["found"] == ["pretend:1", "pretend:1"]
    assert found["errors"] == [None, None, f"{why.format('cpu')} only='torch' leaves the others out."]
    assert found["warned"] == [
        f"{why.format('cuda:1')} It is left out; code that uses it does not run in a block."
    ]
    assert found["after"] == ["cpu", 0]


JAX: list[Row] = [
    (
        "on_gpu_jax.devices",
        (),
        {
            "array": JAX_CPU[2],
            "compiled": JAX_CPU[2],
            "random": JAX_CPU[2],
            "in an inner block": JAX_CPU[0],
            "outside": JAX_CPU[0],
        },
    ),
    (
        "on_gpu_jax.refused",
        ("cpu:4",),
        {"error": "cpu:4 can't be used: JAX has cpu:0, cpu:1, cpu:2 and cpu:3.", "ran": False},
    ),
    ("on_gpu_jax.refused", (0,), {"error": f"cuda:0 can't be used: {JAX_WITHOUT_GPU}.", "ran": False}),
    ("on_gpu_jax.device_objects", (), {"device": JAX_CPU[2]}),
    ("on_gpu_jax.given_device", (), ["cpu:2", JAX_CPU[2]]),
    (
        "on_gpu_hidden_jax.unrelated_blocks",
        (),
        {"0": ["pretend:0", False], "2": ["pretend:2", False]},
    ),
    (
        # It can't be told of its fourth device before it starts.
        "on_gpu_hidden_jax.started_by_a_block",
        (),
        {
            "first": "This is to run on cpu:3, and JAX could not: only its first device can be named before it "
            "starts. It has started now: run it again.",
            "second": JAX_CPU[3],
            "outside": JAX_CPU[0],
            "on a GPU": f"This is to run on cuda:0, and JAX could not: {JAX_WITHOUT_GPU}.",
        },
    ),
    ("on_gpu_torch_and_jax.torch_alone", ("pretend:2",), {"made on": "pretend:2", "JAX is started": False}),
    ("on_gpu_torch_and_jax.given_device", (), ["pretend:2", "pretend:2"]),
    (
        "on_gpu_torch_and_jax.behind_a_decorator",
        (),
        {"error": f"cuda:1 can't be used: {JAX_WITHOUT_GPU}.", "ran": False},
    ),
    (
        "on_gpu_torch_and_jax.mere_word",
        (),
        {"net": "pretend:1", "text": "no jax here", "given": "pretend:1"},
    ),
    ("on_gpu_jax_and_cupy.first_gpu", (), {"CuPy": 0, "JAX": "gpu"}),
    ("on_gpu_cupy.devices", (), {"inside": 3, "on the CPU": 3, "outside": 0}),
    (
        "on_gpu_cupy.refused",
        (4,),
        {"error": "cuda:4 can't be used: CuPy sees cuda:0, cuda:1, cuda:2 and cuda:3.", "ran": False},
    ),
    ("on_gpu_cupy.device_objects", (), {"device": 2}),
    ("on_gpu_cupy.given_device", (), ["<CUDA Device 2>", 2]),
    ("on_gpu_cupy.blocks_in_threads", (), [1, 2, 3, 0]),
]


@pytest.mark.parametrize("row", JAX, ids=lambda row: row[0])
def test_jax_and_cupy(run: Runner, row: Row) -> None:
    check(run, row)


def test_jax_that_has_not_started_raises_by_itself_if_it_has_no_gpu(run: Runner) -> None:
    assert run("on_gpu_hidden_jax.started_on_a_gpu").startswith("Unknown backend: 'gpu' request")


def test_cupy_that_can_t_use_cuda_is_refused(run: Runner) -> None:
    found = run("on_gpu_cupy.refused", 0, CUPY_STANDIN_BROKEN="1")
    assert found["error"].startswith("cuda:0 can't be used: CuPy can't use CUDA here (cudaErrorNoDevice")


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
    assert run("on_gpu_keras.blocks_in_threads", *devices, KERAS_BACKEND=backend) == made_on
    assert run("on_gpu_keras.fit", devices[0], KERAS_BACKEND=backend) == [made_on[0], made_on[-1]]


def test_keras_on_jax_is_given_its_own_name_and_mirror_is_tensorflow_s(run: Runner) -> None:
    assert run("on_gpu_keras.given_device", "cpu:2", KERAS_BACKEND="jax") == ["cpu:2", "cpu:2"]
    found = run("on_gpu_keras.refused", "cpu:0,cpu:1", True, KERAS_BACKEND="jax")
    assert found == "cpu and cpu:1 can't be used: mirror=True is TensorFlow's, and Keras runs on jax."


def test_a_keras_backend_without_gpus_is_refused(run: Runner) -> None:
    found = run("on_gpu_keras.refused", 0, False, KERAS_BACKEND="numpy")
    assert found == "cuda:0 can't be used: Keras runs on its numpy backend, which has no GPU."


def test_keras_does_not_start_the_jax_that_it_drags_in(run: Runner) -> None:
    assert run("on_gpu_keras_inside.imported_inside", KERAS_BACKEND="torch") == {
        "device": "pretend:2",
        "backend": "torch",
        "JAX is imported": True,
        "JAX is started": False,
    }


# Imports inside, and all of them together


def test_tensorflow_and_jax_are_set_when_the_block_imports_them(run: Runner) -> None:
    assert run("on_gpu_first_imports.jax_and_tensorflow") == {
        "JAX inside": JAX_CPU[2],
        "JAX in another package": JAX_CPU[2],
        "TensorFlow inside": "CPU:0",
        "JAX outside": JAX_CPU[0],
    }


def test_what_the_block_imports_brings_its_backend_into_use(run: Runner) -> None:
    found = run("on_gpu_first_imports.keras_inside", KERAS_BACKEND="tensorflow")
    assert found == {"was imported": True, "inside": "cpu:3 can't be used: TensorFlow has cpu:0."}
    for only in (None, "keras"):
        found = run.fresh("on_gpu_first_imports.keras_on_jax", only, KERAS_BACKEND="jax")
        assert found == {"inside": "cpu:2", "outside": "cpu"}
    found = run.fresh("on_gpu_cells.jax_through_a_package")
    assert found == {"inside": JAX_CPU[2], "outside": JAX_CPU[0]}


NONE = ["cpu", 0, "CPU:0", JAX_CPU[0]]
IN_BLOCKS = [[f"pretend:{index}", index, f"CPU:{index}", JAX_CPU[index]] for index in (1, 2, 3)]
ALL: list[Row] = [
    (
        "on_gpu_all.blocks_in_threads",
        (),
        {"in blocks": IN_BLOCKS, "without one": [IN_BLOCKS[0], NONE, NONE], "after": NONE},
    ),
    ("on_gpu_all.overlapping_tasks", (), NONE[:3]),
    ("on_gpu_all.torch_device_left_open", (), {"before": NONE[:3], "after": NONE[:3]}),
    ("on_gpu_all.suspended_generator", (), ["cpu", "cpu", 0]),
    ("on_gpu_all.tensorflow_device_left_open", (), "CPU:0"),
    ("on_gpu_all.jax_configured_inside", (), {"in an inner block": JAX_CPU[1], "outside": JAX_CPU[0]}),
    ("on_gpu_all.jax_configured_beside_a_block", (), JAX_CPU[3]),
]


@pytest.mark.parametrize("row", ALL, ids=lambda row: row[0])
def test_nothing_is_left_behind_and_threads_are_told_apart(run: Runner, row: Row) -> None:
    check(run, row)


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("on_gpu_torch.compiled", (3,)),
        ("on_gpu_tensorflow.mirrored", ()),
        ("on_gpu_all.blocks_in_threads", ()),
    ],
)
def test_a_process_that_has_used_it_ends_as_any_other(
    run: Runner, program: str, arguments: tuple[object, ...]
) -> None:
    assert run.to_the_end(program, *arguments)
