"""What `%gpus` tells the frameworks: memory, and fewer GPUs in a process that can't change its mask."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from tests.machine import CARDS
from tests.programs.runner import PROGRAMS, ROOT

if TYPE_CHECKING:
    from tests.programs.runner import Runner

GROWTH = "TensorFlow and JAX take memory as they need it."


def test_growth_is_set(machine: Runner) -> None:
    assert machine("settings.growth", XLA_PYTHON_CLIENT_PREALLOCATE="true") == {
        "said": GROWTH,
        "variables": {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    }


def test_growth_ends_with_the_next_choice(machine: Runner) -> None:
    """Each choice says all of it."""
    found = machine("settings.growth_and_another_choice", XLA_PYTHON_CLIENT_PREALLOCATE="true")
    assert found == {"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}


def test_growth_is_taken_back(machine: Runner) -> None:
    assert machine("settings.growth_and_reset", XLA_PYTHON_CLIENT_PREALLOCATE="true") == {
        "variables": {"XLA_PYTHON_CLIENT_PREALLOCATE": "true"},
        "visible devices": None,
    }


def test_growth_is_not_set_in_a_dry_run(machine: Runner) -> None:
    assert machine("settings.growth_in_a_dry_run", XLA_PYTHON_CLIENT_PREALLOCATE="true") == {
        "said": [
            GROWTH,
            "Nothing was changed; it would be CUDA_VISIBLE_DEVICES=1, CUDA_DEVICE_ORDER=PCI_BUS_ID.",
        ],
        "variables": {"XLA_PYTHON_CLIENT_PREALLOCATE": "true"},
    }


def test_growth_needs_a_gpu(machine: Runner) -> None:
    assert machine("settings.growth_without_gpus") == (
        "--growth goes with GPUs that are named; try %gpus all --growth."
    )


def test_unloading_takes_it_back(machine: Runner, capsys: pytest.CaptureFixture[str]) -> None:
    assert machine("settings.unloading") == {
        "loaded": [
            "TF_FORCE_GPU_ALLOW_GROWTH",
            "XLA_PYTHON_CLIENT_MEM_FRACTION",
            "XLA_PYTHON_CLIENT_PREALLOCATE",
        ],
        "unloaded": {},
        "hooks": [],
    }
    assert capsys.readouterr().out.strip().split("\n")[-1] == (
        "Your choice is undone: CUDA_VISIBLE_DEVICES is unset again, so that all GPUs are visible. %gpus chooses anew, "
        "once gpu_magic is loaded."
    )


@pytest.mark.parametrize(
    "program", ["settings_torch_and_tensorflow.limit_after_imports", "settings.limit_before_imports"]
)
def test_a_limit_reaches_each_framework_in_its_own_way(machine: Runner, program: str) -> None:
    """What TensorFlow and PyTorch then hold is read where they keep it; on a GPU tests/gpu measures it."""
    fraction = int(10_000 * (8 << 30) / CARDS[1].total) / 10_000
    assert machine(program) == {
        "said": "TensorFlow, JAX and PyTorch take at most 8 GiB of a GPU.",
        "variables": {"XLA_PYTHON_CLIENT_MEM_FRACTION": str(fraction)},
        "TensorFlow": {"GPU:0": [8192], "GPU:1": [8192]},
        "TensorFlow has started": False,
        "PyTorch calls when it starts": ["_set_fractions"],
        "PyTorch": 8 << 30,
        "after another choice": {"variables": {}, "TensorFlow": 0, "PyTorch": None},
    }


def test_tensorflow_takes_such_a_logical_device_for_real(machine: Runner) -> None:
    """The same way with CPUs, which are there: a device that was described before it is listed."""
    assert machine("settings_tensorflow.unlisted_logical_devices") == 3


def test_jax_s_new_name_of_the_fraction_is_kept_where_it_is_set(machine: Runner) -> None:
    """With both names JAX refuses to start (jaxlib 0.10)."""
    found = machine("settings.limit_with_jax_s_new_name", XLA_CLIENT_MEM_FRACTION="0.9")
    assert found["variables"] == ["XLA_CLIENT_MEM_FRACTION"]
    assert found["fraction"] < 0.5


@pytest.mark.parametrize(
    ("option", "options"),
    [("--growth", {"growth": True}), ("--memory-limit", {"memory_limit": "8GB"})],
)
def test_it_is_too_late_once_a_framework_has_started(
    machine: Runner, option: str, options: dict[str, object]
) -> None:
    assert machine("settings_jax.too_late", options) == {
        "error": f"{option} comes too late: JAX has started, and took memory in another way. Restart and choose "
        "before that; nothing was changed.",
        "variables": {},
        "visible devices": None,
    }


def test_a_limit_is_too_late_for_tensorflow_as_well(machine: Runner) -> None:
    assert machine("settings_tensorflow.limit_too_late") == (
        "--memory-limit comes too late: TensorFlow has started, and took memory in another way. Restart and choose "
        "before that; nothing was changed."
    )


def test_growth_is_too_late_for_a_tensorflow_that_has_started_on_the_cpu(machine: Runner) -> None:
    assert "--growth comes too late: TensorFlow has started" in machine("settings_tensorflow.growth_too_late")


def test_the_same_choice_with_the_same_memory_is_fine_once_a_framework_has_started(machine: Runner) -> None:
    assert machine("settings_jax.the_same_again") == [True, True]


def test_a_framework_that_has_started_without_a_gpu_is_named(machine: Runner) -> None:
    said = machine("settings_jax.started_under_none", PYTHONPATH=f"{ROOT}:{PROGRAMS / 'jax_plugin'}")
    assert said == "JAX started without a GPU, and will have none before a restart."


def test_tensorflow_that_has_listed_its_gpus_is_told_of_each_and_gets_back_what_it_had(
    machine: Runner,
) -> None:
    assert machine("settings_tensorflow.listed") == {
        "with a limit": [[8192], [8192]],
        "reset": [None, [100]],
    }


def test_a_limit_that_tensorflow_has_started_with_stays_what_it_says(machine: Runner) -> None:
    assert machine("settings_tensorflow.limit_of_a_started_one") == [2, 2]


def test_the_same_choice_of_a_frozen_process_can_still_say_memory(machine: Runner) -> None:
    assert machine("settings.growth_once_cuda_is_initialized") == {
        "same choice": [False, ["TF_FORCE_GPU_ALLOW_GROWTH"]],
        "other choice": [True, ["TF_FORCE_GPU_ALLOW_GROWTH"]],
    }


def test_in_process_is_for_a_process_where_cuda_is_initialized(machine: Runner) -> None:
    assert machine("settings.in_process_before_cuda_is_initialized") == (
        "CUDA has not been initialized here: try %gpus 2, which is for every framework."
    )


def test_in_process_tells_what_is_imported_and_says_what_came_of_it(machine: Runner) -> None:
    gpu = "cuda:1 = GPU 2 (NVIDIA A100-SXM4-80GB, 79 GiB free)"
    assert machine("settings_all.in_process") == {
        "dry run": [gpu, "Nothing was changed."],
        "after it": 0,
        "said": [
            gpu,
            "PyTorch: its current device is pretend:1; the others can still be named.",
            f"TensorFlow {version('tensorflow-cpu')} is built without CUDA.",
            f"JAX {version('jax')} has no GPU here.",
        ],
        "current": 1,
        "visible devices": "1,2,3",
        "another": [[2], 2],
        "one that it can't use": "CUDA was initialized, and this process can use GPU 1 (cuda:0), GPU 2 (cuda:1), "
        "GPU 3 (cuda:2) and no other.",
        "with memory": "An in-process choice sets neither CUDA_VISIBLE_DEVICES nor memory limits: omit --growth and --memory-limit.",
        "reset": ["PyTorch: as it was.", 0],
    }


def test_tensorflow_is_narrowed_while_it_only_lists_its_devices(machine: Runner) -> None:
    assert machine("settings_tensorflow.narrowed") == {
        "within": "/job:localhost/replica:0/task:0/device:GPU:1",
        "said": "it sees cuda:1 as /GPU:0 and cuda:2 as /GPU:1",
        "visible": ["GPU:2", "GPU:1"],
        "names": ["/GPU:0", "/GPU:1"],
        "problem": "",
        "one that is not there": "it does not list cuda:7",
        "visible afterwards": 3,
        "name afterwards": "/GPU:2",
    }


def test_the_refusal_of_a_frozen_process_names_it(machine: Runner) -> None:
    (message,) = machine("settings_torch.refused")
    assert (
        "any framework: with gpu_magic.on_gpu(1) for a block, gpu_magic.choose('2', in_process=True)"
        in message
    )
