"""What holds tensors, moved with them: containers, objects of other packages, and those that raise what they like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.programs.runner import Runner

WHOLE = "can't be moved as a whole (24 bytes on cpu). Create it again in a cell with %%on_gpu."
LOADED = "stays on the CPU, where a DataLoader's workers read it: move each batch (32 bytes on cpu)."
NOTHING = "There is nothing to move in {} ({}): no framework's arrays."
RAISING = ("Shape", "Class", "Everything", "OfOddType", "Dtype", "To", "OddNet", "names and keys")
FOUND: dict[str, Any] = {
    "deep": ["pretend:0", True, True],
    "self_moving": [True, True, False, ["pretend:1"], "cpu"],
    "written_meanwhile": [5, ["new"], 5, "pretend:0", "pretend:0"],
    "kept_alive": [True, 0, "cpu"],
    "leftovers": [
        [
            "Not named, and not tied to what has moved: x, y, with the old copy (8 bytes on cpu). Names that belong "
            "together move together in one line.",
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
        "pipe": f"pipe is a Pipeline of transformers, which {WHOLE}",
        "trainer": f"trainer is a Trainer of transformers, which {WHOLE}",
        "data": f"A TensorDataset {LOADED}",
        "loader": f"A DataLoader {LOADED}",
        "from Python": f"it is a Pipeline of transformers, which {WHOLE}",
        "parts": ["pretend:1", "pretend:1"],
        "state": ["8 bytes moved to pretend:1.", f"state holds a Pipeline of transformers, which {WHOLE}"],
        "model": ["24 bytes moved to pretend:1."],
        "all": ["8 bytes moved to pretend:1.", f"pipe is a Pipeline of transformers, which {WHOLE}"],
        "scripted": [
            "24 bytes moved to pretend:1.",
            "odd stays: A scripted module keeps its tensors outside Python: use its own .to(device).",
        ],
        "seen": [{"cpu": 24}, {"cpu": 24}, {}],
    },
    "odd": {
        **{kind: ["pretend:1"] for kind in RAISING},
        "everything": NOTHING.format("everything", "Everything"),
        "type": NOTHING.format("type", "OfOddType"),
    },
}


@pytest.mark.parametrize("case", FOUND)
def test_it_is_moved_whole_or_named(run: Runner, case: str) -> None:
    assert run(f"moving_objects.{case}") == FOUND[case]


@pytest.mark.parametrize("overwrites", [False, True], ids=["parameters stay", "PyTorch's new behavior"])
def test_modules_that_remember_their_device_are_told(run: Runner, overwrites: bool) -> None:
    places = [[device, [device]] for device in ("pretend:1", "pretend:2", "cpu")]
    assert run("moving_objects.remembering", overwrites) == [places, "pretend:2", True]


def test_the_graph_of_objects_is_the_same_after_a_move(run: Runner) -> None:
    assert run("moving_structures.any_structure") > 50
    kind = "<class 'frozenset'>"
    assert run("moving_structures.by_hash") == [
        [True] * 3 + [False],
        [True] * 4,
        ["b", "a"],
        kind,
        "pretend:1",
    ]
