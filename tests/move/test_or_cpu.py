"""`--or-cpu` and `or_cpu=True`: to the CPU where the GPU can't be used, which is said; to the GPU where it can."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.programs.runner import Runner

NO_DEVICE = "cuda:9 can't be used: PyTorch sees pretend:0, pretend:1, pretend:2 and pretend:3."
NO_CUDA = f"cuda:0 can't be used: TensorFlow {version('tensorflow-cpu')} is built without CUDA."
NO_GPU = f"cuda:0 can't be used: JAX {version('jax')} has no GPU here."


def test_it_says_nothing_where_the_gpu_is_there(run: Runner) -> None:
    assert run("moving_or_cpu.moved", 1) == {"device": "pretend:1", "said": ""}


def test_it_moves_to_the_cpu_where_the_gpu_is_not_there(run: Runner) -> None:
    assert run("moving_or_cpu.moved", 9) == {"device": "cpu", "said": f"Moving to the CPU: {NO_DEVICE}\n"}
    assert run("moving_or_cpu.back") == "cpu"


def test_it_moves_to_the_cpu_where_this_process_does_not_see_the_gpu(run: Runner) -> None:
    found = run("moving_or_cpu.moved", "smi:9")
    assert found["device"] == "cpu"
    assert found["said"].startswith("Moving to the CPU: ")


def test_all_goes_to_the_cpu_where_one_framework_has_no_gpu(run: Runner) -> None:
    assert run("moving_or_cpu.together") == {
        "devices": ["cpu", "CPU:0"],
        "said": f"Moving to the CPU: {NO_CUDA}\n",
    }


def test_numpy_arrays_become_jax_s_on_the_cpu(run: Runner) -> None:
    assert run("moving_or_cpu.converted") == ["cpu:0", f"Moving to the CPU: {NO_GPU}\n"]


def test_with_all_what_can_be_moved_to_the_gpu_is(run: Runner) -> None:
    assert run("moving_or_cpu.all_variables", ["x", "t"]) == {
        "x": "pretend:0",
        "skipped": ["t"],
        "said": "",
    }


def test_with_all_it_is_the_cpu_where_nothing_can_be_moved_to_the_gpu(run: Runner) -> None:
    assert run("moving_or_cpu.all_variables", ["t"]) == {
        "x": "cpu",
        "skipped": [],
        "said": f"Moving to the CPU: t: {NO_CUDA}\n",
    }


def test_what_has_another_reason_is_refused_all_the_same(run: Runner) -> None:
    nowhere, meta = run("moving_or_cpu.other_errors")
    assert nowhere.startswith("'nowhere' is not a device")
    assert meta == "A Tensor of shape (2,) is on the meta device and has no data to move."
