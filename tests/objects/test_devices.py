"""`gpu_magic.devices_of`: where real frameworks' variables are; each program in a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.programs.runner import Runner

MODEL = 4 * (10 * 10 + 10 + 10)  # bytes: two layers with one weight
FOUND: dict[str, Any] = {
    "of_torch": {
        "model": {"cpu": 12, "pretend:2": MODEL},
        "trainer": {"cpu": 12, "pretend:2": MODEL},
        "optimizer": {"cpu": 12, "pretend:2": 4 * MODEL},
        "views": {"pretend:1": 40},
        "sparse and meta": {"cpu": 80, "meta": 8},
        "a class": {},
        "lazy": 0,
        "shown": ["pretend:1: 40 bytes", "No arrays."],
    },
    "containers": dict.fromkeys(("slots", "module", "dataset", "data loader"), 40),
    "of_others": {
        "TensorFlow": [{"cpu:2": 40}, {"cpu:2": 40}],
        "Keras": {"cpu:2": 40},
        "mirrored": {"cpu": 16, "cpu:1": 16},
        "composite": {"cpu": 72},
        "tf.Module": {"cpu": 4},
        "sharded": [{"cpu": 16, "cpu:1": 16}, {"cpu": 32, "cpu:1": 32}],
        "tree": {"cpu": 16},
        "pytree": {"cpu": 16},
        "traced and deleted": ["No arrays.", {}],
        "CuPy": [{"cuda:3": 80}, "cuda:3: 80 bytes"],
        "NumPy": [{"cpu": 8000}, "the CPU: 8.0 MiB in 2 arrays"],
        "strided": {"cpu": 8},
        "shared with PyTorch": [{"cpu": 8000}, {"cpu": 8000}],
        "shared with JAX": {"cpu": 4000},
    },
    "saved_errors": {
        "of a function": {"cpu": 8 + 4},
        "that led to it": {"cpu": 12 + 4},
        "with an attribute": {"cpu": 16 + 4 + 8},
        "in a group": {"cpu": 28 + 4},
        "of a cell": {},
    },
    "plain_values": [[*[1] * 5, 4], [1] * 9],
}


@pytest.mark.parametrize("program", FOUND)
def test_memory_is_found_once_and_where_it_is(run: Runner, program: str) -> None:
    assert run(f"devices_of.{program}") == FOUND[program]


def test_odd_objects_are_passed_over_and_each_type_is_warned_of_once(run: Runner) -> None:
    found, said = run("devices_of.odd_objects")
    assert found == [{"cpu": 4}] * 9
    assert len(said) == len(set(said))
    assert any("Raising'> can't be looked into (RuntimeError)" in one for one in said)
