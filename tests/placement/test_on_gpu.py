"""`gpu_magic.on_gpu`: real frameworks on real devices that are not GPUs, each program in a process of its own.

PyTorch has a pretend accelerator of four devices, TensorFlow and JAX four logical CPUs, CuPy a stand-in. What
is asked is always the frameworks' own answer: the device of something that was made.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from tests.programs.runner import PROGRAMS

if TYPE_CHECKING:
    from tests.programs.runner import Runner

TORCH = version("torch") if "+" in version("torch") else f"{version('torch')}+cpu"
TORCH_WITHOUT_CUDA = f"PyTorch {TORCH} is built without CUDA"
TENSORFLOW_WITHOUT_CUDA = f"TensorFlow {version('tensorflow-cpu')} is built without CUDA"
JAX_WITHOUT_GPU = f"JAX {version('jax')} has no GPU here"
FOUR_OF_PYTORCH = "PyTorch sees pretend:0, pretend:1, pretend:2 and pretend:3"
FOUR_OF_TENSORFLOW = "TensorFlow has cpu:0, cpu:1, cpu:2 and cpu:3"


# PyTorch


def test_pytorch_has_the_device_as_its_default_and_its_current_one(run: Runner) -> None:
    assert run("on_gpu_torch.default_and_current_device") == {
        "inside": ["pretend:2", 2, "pretend:2"],
        "of the accelerator": "pretend:2",
        "in an inner block": ["pretend:1", 1, "pretend:1"],
        "on the CPU in between": ["cpu", 2, "cpu"],
        "inside again": ["pretend:2", 2, "pretend:2"],
        "outside": ["cpu", 0, "cpu"],
    }


def test_a_device_can_be_written_in_each_way_that_frameworks_write_it(run: Runner) -> None:
    names = [
        "'/GPU:3'",
        "'/device:GPU:3'",
        "'pretend:3'",
        "device(type='pretend', index=3)",
        "3",
        "'3'",
        "'GPU:3'",
    ]
    assert run("on_gpu_torch.device_names") == dict.fromkeys(names, "pretend:3")


def test_a_data_loader_shuffles_where_a_plain_torch_device_breaks_it(run: Runner) -> None:
    found = run("on_gpu_torch.shuffled_loader")
    assert found["with torch.device"] == "Expected a 'pretend' device type for generator but found 'cpu'"
    assert found["batches"] == 2


def test_a_data_loader_with_a_seed_has_the_same_order_again(run: Runner) -> None:
    found = run("on_gpu_torch.seeded_loader")
    assert found["first"] == found["again"]


def test_a_data_loader_s_worker_makes_tensors_on_the_cpu(run: Runner) -> None:
    assert run("on_gpu_torch.loader_with_a_worker") == "cpu"


@pytest.mark.parametrize("way", ["made", "of_a_tensor", "in_place"])
def test_a_cpu_generator_gives_the_same_numbers_on_the_device(run: Runner, way: str) -> None:
    for name, found in run(f"on_gpu_torch_sampling.{way}").items():
        assert found["inside"]["device"] == "pretend:1", name
        assert found["inside"]["values"] == found["outside"]["values"], name


def test_a_tensor_that_is_filled_by_a_cpu_generator_stays_the_same_one(run: Runner) -> None:
    found = run("on_gpu_torch_sampling.in_place")
    assert [name for name, filled in found.items() if not filled["is the same"]] == []


def test_a_weight_that_is_drawn_with_a_cpu_generator_is_a_leaf(run: Runner) -> None:
    found = run("on_gpu_torch_sampling.trained_weight")
    assert found == {"is a leaf": True, "grad": "pretend:1"}


def test_a_device_that_is_named_beside_a_generator_counts(run: Runner) -> None:
    assert run("on_gpu_torch_sampling.device_that_is_named") == "cpu"


def test_a_given_output_is_filled_by_a_generator_of_its_device_and_no_other(run: Runner) -> None:
    assert run("on_gpu_torch_sampling.given_output") == {
        "is the same": True,
        "on the device": "Expected a 'pretend' device type",
        "is unchanged": True,
    }


def test_a_weighted_sampler_with_a_seed_draws_as_it_does_outside(run: Runner) -> None:
    found = run("on_gpu_torch_sampling.weighted_sampler")
    assert found["inside"] == found["outside"]


def test_a_data_loader_that_pins_passes_on_what_is_made_on_the_device(run: Runner) -> None:
    assert run("on_gpu_torch_sampling.pinned_loader") == {
        "batches": ["pretend:1", "pretend:1"],
        "is the same": True,
    }


def test_what_is_made_from_something_else_stays_where_that_is(run: Runner) -> None:
    assert run("on_gpu_torch.tensors_made_from_others") == {"from_numpy": "cpu", "zeros_like": "cpu"}


def test_training_has_all_of_a_model_there(run: Runner) -> None:
    assert run("on_gpu_torch.training", 3, 1, 3) == [["pretend:3"], ["pretend:1"], ["pretend:3"]]


def test_an_optimizer_counts_its_steps_on_the_cpu(run: Runner) -> None:
    """Reading a count of each parameter's on a GPU would wait for the GPU, at each step."""
    found = run("on_gpu_torch.step_counts")
    assert found.pop("average") == "pretend:1"
    assert {name: where for name, where in found.items() if where != ["cpu"]} == {}


def test_a_compiled_function_runs_on_the_device_of_each_block(run: Runner) -> None:
    assert run("on_gpu_torch.compiled", 3, 1, 3) == ["pretend:3", "pretend:1", "pretend:3", "cpu"]


@pytest.mark.parametrize("inside", ["pretend:3", "cpu", None])
@pytest.mark.parametrize("before", [None, "pretend:1", "cpu"])
def test_a_default_device_set_inside_ends_with_the_block(
    run: Runner, before: str | None, inside: str | None
) -> None:
    found = run("on_gpu_torch.default_device_set_inside", before, inside)
    assert found["after"] == found["before"]
    assert found["before"][2] == (before or "cpu")


@pytest.mark.parametrize("before", [None, "pretend:1", "cpu"])
def test_an_error_in_a_torch_device_inside_leaves_nothing_behind(run: Runner, before: str | None) -> None:
    found = run("on_gpu_torch.device_context_that_raises", before)
    assert found["after"] == found["before"]
    assert found["before"][2] == (before or "cpu")


@pytest.mark.parametrize(
    ("device", "error"),
    [
        (4, f"cuda:4 can't be used: {FOUR_OF_PYTORCH}."),
        ("cuda:0", f"cuda:0 can't be used: PyTorch {TORCH} has no cuda."),
        ("xpu:0", f"xpu:0 can't be used: PyTorch {TORCH} has no xpu."),
    ],
)
def test_a_device_that_pytorch_has_not_got_is_refused_and_nothing_runs(
    run: Runner, device: object, error: str
) -> None:
    assert run("on_gpu_torch.refused", device) == {"error": error, "ran": False, "after": ["cpu", 0]}


def test_pytorch_without_cuda_is_refused_where_it_is_named(run: Runner) -> None:
    found = run("on_gpu_torch_without_cuda.named", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert found == {"error": f"cuda:0 can't be used: {TORCH_WITHOUT_CUDA}.", "ran": False}


@pytest.mark.parametrize("way", ["make", "make_with_a_generator", "make_with_normal"])
def test_pytorch_without_cuda_raises_where_it_is_not_named(run: Runner, way: str) -> None:
    found = run("on_gpu_torch_without_cuda.hidden", way, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert found == {
        "error": f"This is to run on cuda:0, and {TORCH_WITHOUT_CUDA}.",
        "began on": [0],
        "after": "cpu",
    }


# TensorFlow


def test_tensorflow_has_the_device(run: Runner) -> None:
    assert run("on_gpu_tensorflow.devices") == {
        "tensor": "CPU:2",
        "variable": "CPU:2",
        "function": "CPU:2",
        "in an inner block": "CPU:1",
        "inside again": "CPU:2",
        "outside": "CPU:0",
    }


@pytest.mark.parametrize(
    ("device", "error"),
    [
        ("cpu:4", f"cpu:4 can't be used: {FOUR_OF_TENSORFLOW}."),
        (0, f"cuda:0 can't be used: {TENSORFLOW_WITHOUT_CUDA}."),
    ],
)
def test_a_device_that_tensorflow_has_not_got_is_refused_and_nothing_runs(
    run: Runner, device: object, error: str
) -> None:
    assert run("on_gpu_tensorflow.refused", device) == {"error": error, "ran": False}


def test_tensorflow_is_not_started_by_a_block_that_does_not_use_it(run: Runner) -> None:
    assert run("on_gpu_tensorflow.starting") == {
        "after an unrelated block": False,
        "inside": "CPU:1",
        "after one that uses it": True,
        "outside": "CPU:0",
    }


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


def test_mirrored_over_exactly_these_and_keras_fit_uses_both(run: Runner) -> None:
    assert run("on_gpu_tensorflow.mirrored") == {
        "in sync": 2,
        "replicas": ["CPU:1", "CPU:3"],
        "replicas in another block": ["CPU:1", "CPU:3"],
        "mirrors outside": False,
        "outside": "CPU:0",
    }


def test_several_devices_without_mirror_are_refused(run: Runner) -> None:
    assert run("on_gpu_tensorflow.several_refused", "cpu:0,cpu:1", False) == {
        "error": "A cell runs on one device. For cpu:0,cpu:1: mirror=True (TensorFlow, Keras on it), "
        "torch.nn.DataParallel(model, device_ids=[0, 1]), or processes with a GPU each: gpu_magic.launch() "
        "runs a script in them, gpu_magic.cluster() code that you type.",
        "ran": False,
    }


def test_a_mirror_that_only_leaves_without_tensorflow_is_refused(run: Runner) -> None:
    assert run("on_gpu_tensorflow.several_refused", "cpu:0,cpu:1", True, "jax,torch") == {
        "error": "cpu and cpu:1 can't be used: mirror=True is for TensorFlow, which only='jax,torch' leaves out.",
        "ran": False,
    }


def test_a_mirror_over_devices_that_are_not_there_is_refused(run: Runner) -> None:
    assert run("on_gpu_tensorflow.several_refused", "cpu:0,cpu:9", True) == {
        "error": f"cpu and cpu:9 can't be used: {FOUR_OF_TENSORFLOW}.",
        "ran": False,
    }


# JAX


def test_jax_has_the_device(run: Runner) -> None:
    assert run("on_gpu_jax.devices") == {
        "array": "{CpuDevice(id=2)}",
        "compiled": "{CpuDevice(id=2)}",
        "random": "{CpuDevice(id=2)}",
        "in an inner block": "{CpuDevice(id=0)}",
        "outside": "{CpuDevice(id=0)}",
    }


@pytest.mark.parametrize(
    ("device", "error"),
    [
        ("cpu:4", "cpu:4 can't be used: JAX has cpu:0, cpu:1, cpu:2 and cpu:3."),
        (0, f"cuda:0 can't be used: {JAX_WITHOUT_GPU}."),
    ],
)
def test_a_device_that_jax_has_not_got_is_refused_and_nothing_runs(
    run: Runner, device: object, error: str
) -> None:
    assert run("on_gpu_jax.refused", device) == {"error": error, "ran": False}


def test_jax_is_not_started_by_a_block_that_does_not_use_it(run: Runner) -> None:
    assert run("on_gpu_hidden_jax.unrelated_blocks") == {"0": ["pretend:0", False], "2": ["pretend:2", False]}


def test_jax_never_falls_back(run: Runner) -> None:
    """It can't be told of its fourth device before it starts."""
    assert run("on_gpu_hidden_jax.started_by_a_block") == {
        "first": "This is to run on cpu:3, and JAX could not: only its first device can be named before it starts. "
        "It has started now: run it again.",
        "second": "{CpuDevice(id=3)}",
        "outside": "{CpuDevice(id=0)}",
        "on a GPU": f"This is to run on cuda:0, and JAX could not: {JAX_WITHOUT_GPU}.",
    }


def test_jax_that_has_not_started_raises_by_itself_where_it_has_no_gpu(run: Runner) -> None:
    assert run("on_gpu_hidden_jax.started_on_a_gpu").startswith("Unknown backend: 'gpu' request")


@pytest.mark.parametrize("device", ["pretend:0", "pretend:2"])
def test_jax_that_is_only_imported_is_no_hindrance_to_a_device_that_it_does_not_know(
    run: Runner, device: str
) -> None:
    found = run("on_gpu_torch_and_jax.torch_alone", device)
    assert found == {"made on": device, "JAX is started": False}


def test_cuda_0_is_told_to_a_jax_that_has_not_started(run: Runner) -> None:
    assert run("on_gpu_jax_and_cupy.first_gpu") == {"CuPy": 0, "JAX": "gpu"}


# Keras


@pytest.mark.parametrize(
    ("backend", "device", "inside", "outside"),
    [
        (
            "tensorflow",
            "cpu:2",
            "/job:localhost/replica:0/task:0/device:CPU:2",
            "/job:localhost/replica:0/task:0/device:CPU:0",
        ),
        ("jax", "cpu:2", "cpu:2", "cpu:0"),
        ("torch", "2", "pretend:2", "cpu"),
        ("torch", "cpu", "cpu", "cpu"),
    ],
)
def test_keras_on_each_backend(run: Runner, backend: str, device: str, inside: str, outside: str) -> None:
    found = run("on_gpu_keras.fit", device, KERAS_BACKEND=backend)
    assert found == {"backend": backend, "inside": inside, "outside": outside}


def test_keras_does_not_start_the_jax_that_it_drags_in(run: Runner) -> None:
    assert run("on_gpu_keras_inside.imported_inside", KERAS_BACKEND="torch") == {
        "device": "pretend:2",
        "backend": "torch",
        "JAX is imported": True,
        "JAX is started": False,
    }


def test_a_keras_backend_without_gpus_is_refused(run: Runner) -> None:
    found = run("on_gpu_keras.refused", 0, False, KERAS_BACKEND="numpy")
    assert found == "cuda:0 can't be used: Keras runs on its numpy backend, which has no GPU."


def test_mirror_is_tensorflow_s(run: Runner) -> None:
    found = run("on_gpu_keras.refused", "cpu:0,cpu:1", True, KERAS_BACKEND="jax")
    assert found == "cpu and cpu:1 can't be used: mirror=True is TensorFlow's, and Keras runs on jax."


# CuPy


def test_cupy_has_the_device(run: Runner) -> None:
    assert run("on_gpu_cupy.devices") == {"inside": 3, "on the CPU": 3, "outside": 0}


def test_a_device_that_cupy_has_not_got_is_refused_and_nothing_runs(run: Runner) -> None:
    assert run("on_gpu_cupy.refused", 4) == {
        "error": "cuda:4 can't be used: CuPy sees cuda:0, cuda:1, cuda:2 and cuda:3.",
        "ran": False,
    }


def test_cupy_that_can_t_use_cuda_is_refused(run: Runner) -> None:
    assert run("on_gpu_cupy.refused", 0, CUPY_STANDIN_BROKEN="1") == {
        "error": "cuda:0 can't be used: CuPy can't use CUDA here (cudaErrorNoDevice: no CUDA-capable device is "
        "detected).",
        "ran": False,
    }


# Devices that are objects


@pytest.mark.parametrize(
    ("program", "made_on"),
    [
        ("on_gpu_tensorflow.device_objects", {"physical": "CPU:0", "logical": "CPU:2", "several": 2}),
        ("on_gpu_jax.device_objects", {"device": "{CpuDevice(id=2)}"}),
        ("on_gpu_cupy.device_objects", {"device": 2}),
    ],
)
def test_a_framework_s_own_object_names_its_device(
    run: Runner, program: str, made_on: dict[str, object]
) -> None:
    assert run(program) == made_on


def test_a_logical_gpu_of_tensorflow_is_the_gpu_that_it_was_made_of(run: Runner) -> None:
    """TensorFlow's GPU:0 is CUDA's second one where only that is visible to it."""
    assert run("on_gpu_tensorflow.names_of_gpus") == {"physical": "cuda:1", "logical": "cuda:1"}


@pytest.mark.parametrize(
    ("program", "arguments", "given"),
    [
        ("on_gpu_torch.given_device", (1,), ["pretend:1", "pretend:1"]),
        ("on_gpu_torch.given_device", ("cpu",), ["cpu", "cpu"]),
        ("on_gpu_tensorflow.given_device", (), ["/CPU:2", "CPU:2"]),
        ("on_gpu_jax.given_device", (), ["cpu:2", "{CpuDevice(id=2)}"]),
        ("on_gpu_cupy.given_device", (), ["<CUDA Device 2>", 2]),
        ("on_gpu_torch_and_jax.given_device", (), ["pretend:2", "pretend:2"]),
    ],
)
def test_a_block_gives_the_device_as_the_framework_calls_it(
    run: Runner, program: str, arguments: tuple[object, ...], given: list[object]
) -> None:
    """It prints so, and is what the framework's functions take."""
    assert run(program, *arguments) == given


def test_a_block_gives_keras_its_own_name_for_the_device(run: Runner) -> None:
    assert run("on_gpu_keras.given_device", "cpu:2", KERAS_BACKEND="jax") == ["cpu:2", "cpu:2"]


# Imports inside


@pytest.mark.parametrize(
    "how", ["import_statement", "import_of_another_package", "import_from", "import_by_name"]
)
def test_a_framework_that_the_block_imports_is_placed(run: Runner, how: str) -> None:
    assert run(f"on_gpu_imports.{how}") == {
        "inside": "pretend:2",
        "in an inner block": "pretend:1",
        "outside": "cpu",
        "hooks": [],
        "loader": "SourceFileLoader",
        "loader is changed": False,
    }


def test_in_nested_blocks_an_import_in_the_inner_one_is_placed_in_both(run: Runner) -> None:
    assert run("on_gpu_imports.in_an_inner_block") == {
        "inner": ["pretend:1", 1],
        "outer": ["pretend:2", 2],
        "outside": "cpu",
    }


def test_tensorflow_and_jax_are_placed_when_the_block_imports_them(run: Runner) -> None:
    assert run("on_gpu_first_imports.jax_and_tensorflow") == {
        "JAX inside": "{CpuDevice(id=2)}",
        "JAX in another package": "{CpuDevice(id=2)}",
        "TensorFlow inside": "CPU:0",
        "JAX outside": "{CpuDevice(id=0)}",
    }


def test_one_that_can_not_run_there_is_told_at_the_end_of_a_block_and_its_import_is_whole(
    run: Runner,
) -> None:
    assert run("on_gpu_imports.one_that_can_not_run_there") == {
        "error": f"cuda:1 can't be used: {TENSORFLOW_WITHOUT_CUDA}.",
        "outside": "CPU:0",
    }


def test_an_import_that_fails_can_be_tried_again(run: Runner) -> None:
    failure = {"error": "broken", "is imported": False}
    assert run("on_gpu_imports.one_that_fails", str(PROGRAMS / "broken")) == [failure, failure]


def test_an_import_in_a_thread_is_told(run: Runner) -> None:
    (message,) = run("on_gpu_imports.in_a_thread")
    assert message.startswith("PyTorch was first imported in another thread, or by")


def test_what_the_code_reaches_is_looked_into(run: Runner) -> None:
    """A function behind a decorator."""
    found = run("on_gpu_torch_and_jax.behind_a_decorator")
    assert found == {"error": f"cuda:1 can't be used: {JAX_WITHOUT_GPU}.", "ran": False}


def test_a_mere_word_is_no_use_of_a_framework(run: Runner) -> None:
    found = run("on_gpu_torch_and_jax.mere_word")
    assert found == {"net": "pretend:1", "text": "no jax here", "given": "pretend:1"}


def test_keras_that_the_block_imports_brings_its_backend_into_use(run: Runner) -> None:
    found = run("on_gpu_first_imports.keras_inside", KERAS_BACKEND="tensorflow")
    assert found == {"was imported": True, "inside": "cpu:3 can't be used: TensorFlow has cpu:0."}


@pytest.mark.parametrize("only", [None, "keras"])
def test_keras_that_the_block_imports_brings_a_jax_to_any_device(run: Runner, only: str | None) -> None:
    found = run.fresh("on_gpu_first_imports.keras_on_jax", only, KERAS_BACKEND="jax")
    assert found == {"inside": "cpu:2", "outside": "cpu"}


def test_a_package_that_the_block_imports_brings_a_jax_to_any_device(run: Runner) -> None:
    found = run.fresh("on_gpu_cells.jax_through_a_package")
    assert found == {"inside": "{CpuDevice(id=2)}", "outside": "{CpuDevice(id=0)}"}


def test_only_keras_means_its_backend_too(run: Runner) -> None:
    assert run("on_gpu_tensorflow.only_keras", "cpu:4") == f"cpu:4 can't be used: {FOUR_OF_TENSORFLOW}."


def test_namesakes_and_other_generations_of_a_framework_are_left_alone(run: Runner) -> None:
    assert run("on_gpu_namesakes.own_keras", str(PROGRAMS / "namesakes")) == {
        "device": "pretend:1",
        "class": "<class 'keras.Model'>",
        "arrays": "No arrays.",
    }


# What the block leaves open, and what overlaps


def test_the_block_around_is_the_innermost_again_where_one_further_out_is_on_the_same_device(
    run: Runner,
) -> None:
    assert run("on_gpu_torch.innermost_of_the_same_again") == ["cuda:1", "cuda:2"]


def test_blocks_that_overlap_in_tasks_leave_nothing_behind(run: Runner) -> None:
    assert run("on_gpu_all.overlapping_tasks") == ["cpu", 0, "CPU:0"]


def test_a_torch_device_that_the_block_leaves_open_does_not_stay(run: Runner) -> None:
    found = run("on_gpu_all.torch_device_left_open")
    assert found["after"] == found["before"] == ["cpu", 0, "CPU:0"]


def test_a_generator_that_is_suspended_within_the_block_does_not_stay(run: Runner) -> None:
    assert run("on_gpu_all.suspended_generator") == ["cpu", "cpu", 0]


def test_a_tensorflow_device_that_the_block_leaves_open_does_not_stay(run: Runner) -> None:
    assert run("on_gpu_all.tensorflow_device_left_open") == "CPU:0"


def test_a_default_device_that_the_block_sets_in_jax_does_not_stay(run: Runner) -> None:
    assert run("on_gpu_all.jax_configured_inside") == {
        "in an inner block": "{CpuDevice(id=1)}",
        "outside": "{CpuDevice(id=0)}",
    }


def test_lazy_loaders_and_libraries_that_only_look_for_a_framework_find_nothing_of_ours(run: Runner) -> None:
    assert run("on_gpu_first_imports.lazily_loaded_jax") == {
        "outside": "{CpuDevice(id=0)}",
        "loader": "SourceFileLoader",
        "loader in the spec": "SourceFileLoader",
    }


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("on_gpu_torch.training", (3, 1, 3)),
        ("on_gpu_torch.compiled", (3, 1, 3)),
        ("on_gpu_tensorflow.mirrored", ()),
        ("on_gpu_jax.devices", ()),
        ("on_gpu_cupy.devices", ()),
        ("on_gpu_all.jax_configured_inside", ()),
    ],
)
def test_a_process_that_has_used_it_ends_as_any_other(
    run: Runner, program: str, arguments: tuple[object, ...]
) -> None:
    assert run.to_the_end(program, *arguments)


# The block itself


def test_a_decorator_for_functions(run: Runner) -> None:
    assert run("on_gpu_torch.decorated_function") == {
        "device": "pretend:2",
        "number": 3,
        "name": "make",
        "doc": "Make it.",
        "after": ["cpu", 0],
    }


def test_one_object_can_be_entered_within_itself(run: Runner) -> None:
    assert run("on_gpu_torch.block_within_itself") == {
        "inner": "pretend:1",
        "outer": "pretend:1",
        "after": ["cpu", 0],
    }


def test_one_object_can_be_entered_in_two_threads(run: Runner) -> None:
    assert run("on_gpu_torch.block_in_two_threads") == {
        "before": "cpu",
        "inside": "pretend:1",
        "after": "cpu",
        "here": "pretend:1",
        "at the end": ["cpu", 0],
    }


def test_blocks_in_threads_each_have_their_own_device(run: Runner) -> None:
    first, second, third, none = (
        ["pretend:1", 1, "CPU:1", "{CpuDevice(id=1)}"],
        ["pretend:2", 2, "CPU:2", "{CpuDevice(id=2)}"],
        ["pretend:3", 3, "CPU:3", "{CpuDevice(id=3)}"],
        ["cpu", 0, "CPU:0", "{CpuDevice(id=0)}"],
    )
    assert run("on_gpu_all.blocks_in_threads") == {
        "in blocks": [first, second, third],
        "without one": [first, none, none],
        "after": none,
    }


def test_cupy_has_a_device_for_each_thread(run: Runner) -> None:
    assert run("on_gpu_cupy.blocks_in_threads") == [1, 2, 3, 0]


@pytest.mark.parametrize(
    ("backend", "devices", "made_on"),
    [
        ("torch", [1, 2, 3], ["pretend:1", "pretend:2", "pretend:3", "cpu"]),
        ("jax", ["cpu:1", "cpu:2", "cpu:3"], ["cpu:1", "cpu:2", "cpu:3", "cpu:0"]),
        ("tensorflow", ["cpu:1", "cpu:2", "cpu:3"], ["CPU:1", "CPU:2", "CPU:3", "CPU:0"]),
    ],
)
def test_keras_has_a_device_for_each_thread(
    run: Runner, backend: str, devices: list[object], made_on: list[str]
) -> None:
    found = run("on_gpu_keras.blocks_in_threads", *devices, KERAS_BACKEND=backend)
    assert [device.rpartition("device:")[2] for device in found] == made_on


def test_mirroring_is_a_thread_s_own(run: Runner) -> None:
    assert run("on_gpu_tensorflow.mirrored_in_a_thread") == [["CPU:1", "CPU:3"], [False, "CPU:0"]]


def test_a_block_on_a_gpu_that_tensorflow_lacks_leaves_other_threads_their_fallback(run: Runner) -> None:
    assert run("on_gpu_hidden_tensorflow.absent_beside_others") == "CPU:0"


def test_what_this_thread_configures_in_jax_outlasts_a_block_in_another(run: Runner) -> None:
    assert run("on_gpu_all.jax_configured_beside_a_block") == "{CpuDevice(id=3)}"


def test_a_compiled_function_has_the_device_of_the_thread_that_calls_it(run: Runner) -> None:
    assert run("on_gpu_torch.compiled_in_threads") == ["pretend:1", "pretend:2", "cpu", None]


def test_blocks_in_threads_leave_torch_compile_no_default_device(run: Runner) -> None:
    assert run("on_gpu_torch.default_device_of_the_compiler") is None


def test_a_block_that_ends_in_a_thread_does_not_disturb_an_import(run: Runner) -> None:
    """Python goes through the finders one by one: one that goes away meanwhile must not make it miss another."""
    assert run("on_gpu_imports.another_block_ends_meanwhile") == "wave"


def test_a_decorated_function_can_be_handed_to_a_pool_of_threads(run: Runner) -> None:
    assert run("on_gpu_all.decorated_in_a_pool") == [["pretend:1", 1], ["pretend:2", 2]]


@pytest.mark.parametrize("function", ["generator", "coroutine", "asynchronous object"])
def test_what_waits_is_not_decorated(run: Runner, function: str) -> None:
    assert run("on_gpu_torch.decorated", function) == (
        "on_gpu can't decorate a coroutine or a generator: what else runs while it waits would be on that "
        "device, too. Write with on_gpu(...): around what it computes."
    )


@pytest.mark.parametrize(("given", "shown"), [("class", "<class '__main__.Caller'>"), (3, "3"), ("x", "'x'")])
def test_what_is_no_function_is_not_decorated(run: Runner, given: object, shown: str) -> None:
    assert (
        run("on_gpu_torch.decorated", given) == f"on_gpu decorates functions, and {shown} is not a function."
    )


def test_what_names_no_device_is_refused(run: Runner) -> None:
    found = run("on_gpu_torch.wrong_devices")
    assert list(found) == ["b'1'", "{0, 1}", "True", "<built-in function print>", "None", "torch"]
    assert found["torch"] == "The module torch does not name a device; try on_gpu(0) or on_gpu('cpu')."
    assert all("does not name a device" in (error or "") for error in found.values()), found


def test_what_names_no_frameworks_is_refused(run: Runner) -> None:
    assert "only=3 names no frameworks" in run("on_gpu_torch.wrong_frameworks")


def test_a_block_is_left_where_it_was_not_entered_from(run: Runner) -> None:
    """A cell that awaits runs in a task of its own."""
    assert run("on_gpu_torch.entered_in_a_task") == {"inside": "pretend:2", "after": ["cpu", 0]}


def test_a_block_that_is_kept_does_not_keep_variables(run: Runner) -> None:
    assert run("on_gpu_torch.block_that_is_kept") == {"blocks": 2, "is gone": True}


def test_a_pytorch_without_a_private_name_has_its_own_device_context(run: Runner) -> None:
    found = run("on_gpu_torch.without_private_names")
    assert found["inside"] == [["pretend:2", 2], ["cpu", 0], ["pretend:1", 1]]
    assert found["between"] == found["before"]
    assert found["nested"] == "pretend:1"
    assert found["warned"] == [
        f"PyTorch {TORCH} has other insides ('DeviceContext' object has no attribute 'prev_mode'): a block is "
        "with torch.device(...), in which a DataLoader can't shuffle. Update PyTorch."
    ]


def test_a_pytorch_that_is_too_old_is_told_so(run: Runner) -> None:
    assert run("on_gpu_torch.too_old", 1) == {
        "error": f"cuda:1 can't be used: PyTorch {TORCH} is too old for it: 2.8 is needed.",
        "devices": [],
    }


def test_a_pytorch_that_is_too_old_has_the_cpu(run: Runner) -> None:
    assert run("on_gpu_torch.too_old", "cpu") == {"error": None, "devices": ["cpu"]}


OTHER_INSIDES = (
    "TensorFlow can't be set to {}: AttributeError: 'Context' object has no attribute '_set_device'."
)


def test_a_framework_that_fails_to_be_told_is_left_out_of_blocks_that_use_another_one(run: Runner) -> None:
    """Another version of it, with other insides. One warning says so; a block that uses it does not begin."""
    found = run("on_gpu_torch_and_tensorflow.other_insides")
    assert found["found"] == ["pretend:1", "pretend:1", "ran"]
    assert found["errors"] == [
        *[None] * 3,
        # It uses `on_gpu`, of a package that refers to PyTorch.
        *[f"{OTHER_INSIDES.format('cpu')} only='torch' leaves the others out."] * 2,
        OTHER_INSIDES.format("cpu"),
    ]
    assert found["warned"] == [
        f"{OTHER_INSIDES.format('cuda:1')} It is left out; code that uses it does not run in a block."
    ]
    assert found["after"] == ["cpu", 0]


def test_one_that_fails_when_the_block_has_it_imported_is_left_out(run: Runner) -> None:
    assert run("on_gpu_torch_and_tensorflow.other_insides_at_import", str(PROGRAMS / "plugins")) == {
        "found": "pretend:1",
        "warned": [
            "Abacus can't be set to cuda:1: AttributeError: rods have moved. It is left out; code that uses it "
            "does not run in a block."
        ],
    }


def test_a_block_that_could_use_nothing_else_does_not_begin(run: Runner) -> None:
    assert run.fresh("on_gpu_first_imports.nothing_else", str(PROGRAMS / "plugins")) == {
        "error": "Abacus can't be set to cuda:1: AttributeError: rods have moved.",
        "ran": False,
    }


@pytest.mark.parametrize(
    ("device", "only", "devices"),
    [
        (2, "torch", {"PyTorch": "pretend:2", "JAX": "{CpuDevice(id=0)}"}),
        ("cpu:1", ["jax", "tf"], {"PyTorch": "cpu", "JAX": "{CpuDevice(id=1)}"}),
    ],
)
def test_only_limits_it(run: Runner, device: object, only: object, devices: dict[str, str]) -> None:
    assert run("on_gpu_torch_and_jax.limited", device, only) == devices


@pytest.mark.parametrize(
    ("device", "error"),
    [
        ("cpu:9", f"cpu:9 can't be used: {FOUR_OF_TENSORFLOW}."),
        (0, f"cuda:0 can't be used: {TENSORFLOW_WITHOUT_CUDA}."),
    ],
)
def test_a_framework_that_only_names_counts_as_used(run: Runner, device: object, error: str) -> None:
    found = run("on_gpu_tensorflow.nothing_named", device, "tensorflow")
    assert found == {"error": error, "ran": False}


def test_the_backend_of_a_keras_that_only_names_counts_as_used(run: Runner) -> None:
    found = run("on_gpu_tensorflow.nothing_named", 0, "keras")
    assert found == {"error": f"cuda:0 can't be used: {TENSORFLOW_WITHOUT_CUDA}.", "ran": False}


def test_only_is_proposed_where_one_of_several_can_run_there(run: Runner) -> None:
    assert run("on_gpu_torch_and_jax.both") == (
        f"cuda:2 can't be used: {JAX_WITHOUT_GPU}. only='torch' leaves the others out."
    )


@pytest.mark.parametrize(
    ("only", "error"),
    [
        (
            "jaxx",
            "only='jaxx': no framework has that name; it can be torch, tensorflow, jax, cupy and keras, with commas between. Did you mean jax?",
        ),
        ("", "only='' needs a framework: torch, tensorflow, jax, cupy and keras."),
    ],
)
def test_only_says_what_it_can_be(run: Runner, only: str, error: str) -> None:
    assert run("on_gpu_torch_and_jax.wrong_limit", only) == error


def test_or_cpu_says_nothing_where_the_device_is_there(run: Runner) -> None:
    assert run("on_gpu_torch.or_cpu", 1) == {"made on": ["pretend:1"], "said": ""}


@pytest.mark.parametrize(
    ("device", "said"),
    [
        (7, f"Running on the CPU, as cuda:7 can't be used: {FOUR_OF_PYTORCH}.\n"),
        (
            "smi:0",
            "Running on the CPU: No GPU can be seen, as NVML is not here (libnvidia-ml.so.1 of the NVIDIA driver).\n",
        ),
    ],
)
def test_or_cpu_says_so_in_a_line(run: Runner, device: object, said: str) -> None:
    assert run("on_gpu_torch.or_cpu", device) == {"made on": ["cpu"], "said": said}


def test_without_a_framework_it_is_the_machine_that_says_why(run: Runner) -> None:
    assert run.fresh("on_gpu_first_imports.no_framework") == (
        "cuda:0 can't be used. No GPU can be seen, as NVML is not here (libnvidia-ml.so.1 of the NVIDIA driver)."
    )


def test_another_package_can_add_a_framework(run: Runner) -> None:
    """By an entry point, named like its module."""
    assert run("on_gpu_first_imports.plug_in", str(PROGRAMS / "plugins")) == {
        "inside": "rod 1",
        "outside": "cpu",
        "past the last one": "cuda:2 can't be used: the abacus has two rods.",
        "beside a broken one": "rod 1",
        "warnings": [
            "gpu_magic can't use the plug-in for broken: ModuleNotFoundError(\"No module named 'not_there'\")"
        ],
    }


def test_a_block_that_fails_as_it_begins_leaves_all_as_it_was(run: Runner) -> None:
    assert run.fresh("on_gpu_first_imports.error_at_the_beginning", str(PROGRAMS / "plugins")) == {
        "device at the error": "rod 1",
        "outside": "cpu",
        "is in a block": False,
    }
