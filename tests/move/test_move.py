"""`gpu_magic.to_gpu` with real frameworks on devices that are not GPUs, each program in a process of its own.

What is asked is the frameworks' own: where a tensor is, which storage it has, what its allocator holds.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest

from gpu_magic.frameworks.private import PRIVATE

if TYPE_CHECKING:
    from tests.programs.runner import Runner

NO_DEVICE = "cuda:9 can't be used: PyTorch sees pretend:0, pretend:1, pretend:2 and pretend:3."
NO_CUDA = f"cuda:0 can't be used: TensorFlow {version('tensorflow-cpu')} is built without CUDA."
OR = " --or-cpu moves to the CPU."
NO_GPU = f"cuda:0 can't be used: JAX {version('jax')} has no GPU here."
AGAIN = "create it again in a cell with %%on_gpu"
KERAS = f"Keras can't move its own objects (Dense): {AGAIN}, then new.set_weights(old.get_weights())."
VARIABLE = f"TensorFlow can't move a tf.Variable: {AGAIN}, and assign to it."
CPU = "Moving to the CPU: "
WHOLE = (
    "of transformers can't be moved as a whole (24 bytes on cpu). Create it again in a cell with %%on_gpu."
)
LOADED = "stays on the CPU, where a DataLoader's workers read it: move each batch (32 bytes on cpu)."
RAISING = ("Shape", "Class", "OfOddType", "Dtype", "To", "OddNet", "names and keys")
# What programs find, by their file.
FOUND: dict[str, dict[str, Any]] = {
    "moving_torch": {
        "layouts": [True, ["pretend:0"], 8 + 24 + 12 + 480 + 8 + 16, "cpu", False, 1, 2],
        "kinds": [
            *([True] * 4, True, 1, "pretend:0"),  # complex numbers
            *(True, "mine", ["pretend:0"]),  # wrappers
            *(True, "pretend:0", False, [[0, 2], [1, 0]], True),  # sparse ones
        ],
        "numpy_beside_tensors": [True, True, "pretend:0", "pretend:0", [3, 4, 5], "ndarray", "MaskedArray"],
        "leaf_and_its_view": [
            *(True, True, True, "mine", True, "pretend:0", "pretend:0", "cpu", True),
            *([[0, 0, 0], [1, 1, 1]], ["pretend"]),  # what its view's backward adds, and its hook hears
        ],
        "leaves": {
            "frozen": [True, "pretend:0", False],
            "computed": ["pretend:1", "cpu", [2, 2]],
            "view": ["torch.complex64", True],
        },
        "what_holds_on": [
            *("cpu", "pretend:0", 2),
            "A Parameter of shape (8, 2) can't be moved to pretend:0: a graph, a hook or a weak reference holds on to it. "
            "Delete what was computed with it (a loss, outputs), and try again. Nothing was changed.",
            "cpu",
        ],
        "modules": [False, "pretend:1", False, "pretend:1", True, "pretend:1", True],
        "optimizers": {
            "alone": ["pretend:0", "pretend:0"],
            "optimizer first": ["cpu", "cpu", "pretend:0"],
            "rate first": ["cpu", "cpu", "pretend:0"],
            "capturable": ["pretend:0"] * 3,
            "plain tensor": [True, ["pretend:0", "pretend:0"], 24],
        },
        "destinations": ["pretend:1", "pretend:3", "pretend:2", "pretend:0", True],
        "room": [
            "4.0 MiB do not fit on pretend:1, where 3.0 MiB are free. Move fewer, or see what %gpu_free gives back. Nothing "
            "was changed.",
            *(0, "cpu", "pretend:2", "pretend:3"),
        ],
        "numpy_arrays 0": [True, ["pretend:0"]],
        "numpy_arrays cpu": [True, ["cpu"]],
    },
    # What holds tensors: containers, objects of other packages, and those that raise what they like.
    "moving_objects": {
        "deep": ["pretend:0", True, True],
        "self_moving": [True, True, False, ["pretend:1"], "cpu"],
        "written_meanwhile": [5, ["new"], 5, "pretend:0", "pretend:0"],
        "kept_alive": True,
        "leftovers": [
            [
                "Not moved: x, y, with the old copy (8 bytes on cpu). Names that belong together move together in one "
                "line; datasets and outputs stay.",
                "optimizer has some of what has moved, and 48 bytes elsewhere: move optimizer as well.",
                "Not looked at in full, as that would take too long: much and more.",
            ],
            [
                "40 bytes moved to pretend:1.",
                "net has some of what has moved, and 24 bytes elsewhere: move net as well.",
            ],
            ["only  list                    nothing to move", "8 bytes moved to pretend:1."],
        ],
        "data": {
            "kept": [True, True, True],
            "cache": ["pretend:1", "pretend:1", [1, 3, 3]],
            "output": [["logits", "cache", "hidden"], True, True],
            "devices": {"pretend:1": 8 + 24 + 12},
            "distributions": ["pretend:1"] * 3,
            "back": "cpu",
        },
        "left_behind": {
            "pipe": f"pipe: a Pipeline {WHOLE}",
            "data": f"A TensorDataset {LOADED}",
            "loader": f"A DataLoader {LOADED}",
            "from Python": f"it: a Pipeline {WHOLE}",
            "locked": f"locked: a CacheLayer {WHOLE}",
            "parts": ["pretend:1", "pretend:1"],
            "state": [
                "8 bytes moved to pretend:1.",
                f"state: a Pipeline {WHOLE}",
            ],
            "model": ["24 bytes moved to pretend:1."],
            "all": ["8 bytes moved to pretend:1.", f"pipe: a Pipeline {WHOLE}"],
            "scripted": [
                "24 bytes moved to pretend:1.",
                "odd stays: A scripted module keeps its tensors outside Python: use its own .to(device).",
            ],
            "seen": [{"cpu": 24}, {"cpu": 24}, {}],
        },
        "odd": {
            **{kind: ["pretend:1"] for kind in RAISING},
            "type": "There is nothing to move in type (OfOddType): no framework's arrays.",
        },
    },
    "moving_structures": {
        "by_hash": [[True] * 3 + [False], [True] * 4, ["b", "a"], "<class 'frozenset'>", "pretend:1"],
    },
    "moving_frameworks": {
        "pytree": {
            "kept": [True, True, True, 7, "m"],
            "devices": ["{CpuDevice(id=2)}", "{CpuDevice(id=2)}", "{CpuDevice(id=0)}"],
            "one is one": [True] * 4,
            "structure": [True, True],
        },
        "tensors": [
            # The original, the new one, text, which stays, and composite ones.
            ["CPU:0", "CPU:3", "CPU:0", "CPU:3", "CPU:3"],
            *(True, "RaggedTensor", [[1], [2, 3]], "SparseTensor"),
        ],
        "cupy_arrays": [
            [
                "x     ndarray (6,): 1 array  48 bytes  cuda:0 → cuda:2",
                "part  ndarray (2,): 1 array   0 bytes  cuda:0 → cuda:2",
                "56 bytes would move to cuda:2, where 1000 bytes are free. Nothing was changed.",
            ],
            *([0, 2, 2], True, True, [1, 1], "ndarray"),
        ],
        "from_numpy": ["{CpuDevice(id=1)}", 1],
        "tensors_beside_jax": [[True] * 6, ["Tensor", "str", "str", "str"], ["pretend:0"]],
        "or_cpu": {
            "one has none": [["cpu", "CPU:0"], f"{CPU}{NO_CUDA}\n"],
            "all, of which one can": [
                [
                    "x  Tensor (2,): 1 array  8 bytes  cpu → pretend:0",
                    "y  Tensor (2,)                    shared with x",
                    "8 bytes moved to pretend:0.",
                    f"t stays: {NO_CUDA}",
                    f"v stays: {VARIABLE}",
                ],
                *("", "CPU:0"),
            ],
            "all": [
                ["t  EagerTensor    on cpu already", "All of it is on the CPU already."],
                *(f"{CPU}t: {NO_CUDA}\n", "CPU:0"),
            ],
        },
        # A dry run starts no framework to ask it.
        "dry_run_for_numpy": [None, False, f"a: {NO_GPU}{OR}", True],
        "dry_run_for_numpy started": [f"a: {NO_GPU}{OR}", True, f"a: {NO_GPU}{OR}", True],
    },
    # A move that is interrupted, or fails: no variable has moved, and what was allocated is freed.
    "moving_undone": {
        "failures": [
            [
                "pretend:1 ran out of memory after some. All is as it was. Move fewer, or see what %gpu_free gives back."
            ],
            *([], True),
            *("cpu", "pretend:1", "pretend:1"),  # the tuple that was given, and what has moved at last
        ],
        "interrupted_once": [["cpu"], 0, [[], ["pretend:0", "cpu"]]],
        "ignored_interrupt": ["pretend:0", "pretend:0", True],
    },
}


@pytest.mark.parametrize("program", [f"{file}.{name}" for file, found in FOUND.items() for name in found])
def test_it_is_moved_or_named_or_refused(run: Runner, program: str) -> None:
    file, _, name = program.partition(".")
    assert run(*program.split()) == FOUND[file][name]


# Calls, and why each is refused.
REFUSED: dict[str, dict[str, str | None]] = {
    "moving_torch": {
        "to_gpu('model')": "to_gpu moves a variable, and 'model' is a string: remove the quotes.",
        "to_gpu(3)": "There is nothing to move in it (int): no framework's arrays.",
        "to_gpu(scheduler)": "There is nothing to move in it (OneCycleLR): no framework's arrays.",
        "to_gpu(torch.amp.GradScaler('cpu'))": "There is nothing to move in it (GradScaler): no framework's arrays.",
        "to_gpu(torch.ones(2, device='meta'), or_cpu=True)": "A Tensor of shape (2,) is on the meta device and has no "
        "data to move.",
        "to_gpu(resized)": "A Tensor of shape (100,) has no memory at present (its storage was resized).",
        "to_gpu(torch.jit.script(model))": "A scripted module keeps its tensors outside Python: use its own "
        ".to(device).",
        "to_gpu(torch.export.export(model, (torch.ones(1, 2),)))": "An exported program has its device in its graph: "
        'torch.export.passes.move_to_device_pass(program, "cuda:0") returns one for another.',
        "to_gpu(ones, '0,1')": "Variables go to one device, and 0,1 names 2.",
        "to_gpu(ones, 9)": NO_DEVICE + OR,
        "to_gpu(np.ones(2))": "it is a NumPy array, which has no device: --numpy torch (or numpy='torch') makes it a "
        "PyTorch tensor there. jax and cupy also work.",
        "to_gpu(np.ones(2), numpy='jax')": "NumPy's arrays can become those of torch or jax or cupy once that is "
        "imported, and not of jax.",
        "to_gpu(np.ones(2, np.longdouble), 0, numpy='torch')": "PyTorch has no tensors of NumPy's float128.",
        "to_gpu(np.array(['a']), 0, numpy='torch')": "it is NumPy's, and no framework has arrays of <U1.",
    },
    "moving_frameworks": {
        "to_gpu(gone, 'cpu:1')": "A JAX array of shape (3,) was donated, and deleted by that: it has no data to move.",
        "to_gpu(np.ones(2), 'cpu:1', numpy='jax')": "JAX would make float32 of float64, as jax_enable_x64 is not set: "
        'convert it yourself, with .astype("float32").',
        "to_gpu(jnp.ones(2), 0)": NO_GPU + OR,
        "to_gpu(tf.ones(2), 1)": NO_CUDA.replace("cuda:0", "cuda:1") + OR,
        "to_gpu([tf.ones(2), tf.Variable([1.0])], 'cpu:1')": VARIABLE,
        "to_gpu(layer, 'cpu:1')": KERAS,
        "to_gpu({'a': on_torch(2)}, 1)": KERAS,  # as with KERAS_BACKEND=torch
        "to_gpu(keras.Sequential([keras.layers.Input((2,)), layer]), 'cpu')": None,  # it is there already
    },
}


@pytest.mark.parametrize("file", REFUSED)
def test_what_can_not_be_moved_says_why(run: Runner, file: str) -> None:
    calls = REFUSED[file]
    assert dict(zip(calls, run(f"{file}.refused", list(calls)), strict=True)) == calls


@pytest.mark.parametrize("name", [name for name in sorted(PRIVATE) if "%to_gpu" in PRIVATE[name][1]])
def test_models_and_views_are_moved_without_private_names(run: Runner, name: str) -> None:
    is_view = not name.endswith("_base")
    assert run("moving_torch.without", name) == [[True] * 3, ["pretend:0", "pretend:0"], is_view]


TRAINED: list[tuple[str, dict[str, Any], bool]] = [
    ("AdamW", {"weight_decay": 0.1}, True),
    ("AdamW", {"amsgrad": True}, False),
    ("SGD", {"lr": 0.1, "momentum": 0.9}, True),
    ("LBFGS", {"lr": 0.1, "max_iter": 3}, True),
    ("Adagrad", {}, True),
    ("Rprop", {}, True),
]


@pytest.mark.parametrize(("kind", "options", "like_cuda"), TRAINED)
def test_training_goes_on_bit_for_bit(
    run: Runner, kind: str, options: dict[str, Any], like_cuda: bool
) -> None:
    """Like CUDA, and where tensors are swapped: the losses are those of a training that never moved."""
    found = run("moving_torch.training", kind, options, like_cuda)
    stayed, moved = found.pop("losses")
    assert moved == stayed
    assert len(set(stayed)) == 8
    steps = [] if kind in {"SGD", "LBFGS"} else ["cpu"]
    assert found == {
        "moves": [[True, sorted({*steps, to})] for to in ("pretend:0", "pretend:2", "cpu")],
        "the same": True,
        "optimizer's": True,
        "tied": True,
        "scheduler's": True,
        "plain attribute": "cpu",
        "left behind": [0, 0],
    }


@pytest.mark.parametrize("overwrites", [False, True], ids=["parameters stay", "PyTorch's new behavior"])
def test_modules_that_remember_their_device_are_told(run: Runner, overwrites: bool) -> None:
    places = [[device, [device]] for device in ("pretend:1", "pretend:2", "cpu")]
    assert run("moving_objects.remembering", overwrites) == [places, "pretend:2", True]


def test_the_graph_of_objects_is_the_same_after_a_move(run: Runner) -> None:
    assert run("moving_structures.any_structure") > 50


def test_several_frameworks_in_one_object_in_a_process_that_ends_as_any_other(run: Runner) -> None:
    assert run.to_the_end("moving_frameworks.several") == [
        ["cpu", "{CpuDevice(id=0)}", "CPU:0", "cpu"],
        NO_CUDA + OR,
        "cpu",
    ]


FAILED = {
    "no setter": "AttributeError: property 'x' of 'Odd' object has no setter",
    "its setter raises": "ValueError: not there",
    "it can't be built again": "RuntimeError: no copies",
    "its own to raises": "KeyboardInterrupt: no way",
    "a module refuses": "ValueError: `.to` is not supported for `8-bit` models",
}


@pytest.mark.parametrize("like_cuda", [True, False], ids=["like CUDA", "where tensors are swapped"])
def test_each_step_is_undone_whatever_another_one_raises(run: Runner, like_cuda: bool) -> None:
    found = run("moving_undone.failing", like_cuda)
    for kind, error in FAILED.items():
        said = f"Moving to pretend:0 failed, and all is as it was: {error}"
        is_same = kind != "its own to raises"  # what moved itself was told to go back
        assert found[kind] == [said, is_same, ["cpu"], 0], kind


@pytest.mark.parametrize("fails", [False, True])
def test_an_interrupt_at_any_line_is_raised_and_nothing_is_torn(run: Runner, fails: bool) -> None:
    count, wrong, is_handler_back = run("moving_undone.interrupted", fails)
    assert count > 80
    assert wrong == []
    assert is_handler_back
