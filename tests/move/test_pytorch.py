"""`gpu_magic.to_gpu` with PyTorch on its pretend accelerator, each program in a process of its own.

What is asked is PyTorch's own: where a tensor is, which storage it has, what its allocator holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gpu_magic.frameworks.private import PRIVATE

if TYPE_CHECKING:
    from tests.programs.runner import Runner

FOUND: dict[str, Any] = {
    "views": [True, ["pretend:1"], "cpu", [7, 7, 7, 7], 0],
    "layouts": [True, ["pretend:0"], 8 + 24 + 12 + 480 + 8 + 16, False, 1, 2],
    "complex_numbers": [[True] * 4, True, 1, "pretend:0"],
    "wrappers": [True, "mine", ["pretend:0"]],
    "sparse": [True, "pretend:0", False, [[0, 2], [1, 0]], True],
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
    "what_is_beside_a_model": [["pretend:0", "cpu", "cpu"], True],
    "destinations": ["pretend:1", "pretend:3", "pretend:2", "pretend:0", True],
    "room": [
        "4.0 MiB do not fit on pretend:1, where 3.0 MiB are free. Move fewer, or see what %gpu_free gives back. Nothing "
        "was changed.",
        0,
        "cpu",
        "pretend:2",
        "pretend:3",
    ],
    "refused": {
        "nothing": "to_gpu moves a variable, and this one is None.",
        "a name": "to_gpu moves a variable, and 'model' is a string: remove the quotes.",
        "two things": "to_gpu moves one thing, followed by the device, not an Adam: to_gpu((model, optimizer), 1) moves "
        "several.",
        "a number": "There is nothing to move in it (int): no framework's arrays.",
        "a scheduler": "There is nothing to move in it (OneCycleLR): no framework's arrays.",
        "meta": "A Tensor of shape (2,) is on the meta device and has no data to move.",
        "resized": "A Tensor of shape (100,) has no memory at present (its storage was resized).",
        "scripted": "A scripted module keeps its tensors outside Python: use its own .to(device).",
        "exported": "An exported program has its device in its graph: torch.export.passes.move_to_device_pass(program, "
        '"cuda:0") returns one for another.',
        "two devices": "Variables go to one device, and 0,1 names 2.",
        "no such device": "cuda:9 can't be used: PyTorch sees pretend:0, pretend:1, pretend:2 and pretend:3.",
        "numpy": "it is a NumPy array, which has no device: --numpy torch (or numpy='torch') makes it a PyTorch tensor "
        "there. jax and cupy also work.",
        "for pandas": "NumPy's arrays can become those of torch or jax or cupy, and not of pandas.",
        "for jax": "NumPy's arrays can't become JAX's before it is imported: import jax.",
        "longdouble": "PyTorch has no tensors of NumPy's float128.",
        "text": "it is NumPy's, and no framework has arrays of <U1.",
    },
}


@pytest.mark.parametrize("case", FOUND)
def test_it_is_moved_or_refused(run: Runner, case: str) -> None:
    assert run(f"moving_torch.{case}") == FOUND[case]


@pytest.mark.parametrize("device", [0, "cpu"])
def test_numpy_arrays_of_any_layout_become_tensors(run: Runner, device: int | str) -> None:
    where = "cpu" if device == "cpu" else "pretend:0"
    assert run("moving_torch.numpy_arrays", device) == [True, [where]]


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
