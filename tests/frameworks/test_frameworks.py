"""What we ask of a framework, asked of the real ones; each program in a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpu_magic.frameworks import KNOWN, get

if TYPE_CHECKING:
    from tests.programs.runner import Runner


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("TensorFlow", "framework_state.tensorflow_on_the_cpu"),
        ("JAX", "framework_state.jax_on_the_cpu"),
    ],
)
def test_a_framework_that_has_started_on_the_cpu_has_no_gpu(run: Runner, name: str, program: str) -> None:
    """And the place where it keeps its devices is still where we look for them."""
    found = run.fresh(program)
    assert name in found.pop("imported after")  # TensorFlow imports others
    assert found == {
        "imported before": [],
        "has devices when imported": False,
        "has devices when started": True,
        "started": [],
    }


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("TensorFlow", "framework_state_tensorflow.gpu_among_its_devices"),
        ("JAX", "framework_state_jax.gpu_among_its_devices"),
    ],
)
def test_a_gpu_among_its_devices_is_seen(run: Runner, name: str, program: str) -> None:
    """The real framework's own list, with a GPU's entry in it as the framework would write it."""
    assert run(program) == [name]


def test_pytorch_s_flag_is_read_and_its_cuda_not_started(run: Runner) -> None:
    found = run.fresh("framework_state.torch_imported", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert found == {"imported": ["PyTorch"], "started": [], "CUDA is initialized": False}


def test_a_framework_that_is_half_imported_or_blocked_does_no_harm(run: Runner) -> None:
    assert run.fresh("framework_state.half_imported_or_blocked") == {"imported": [], "started": []}


def test_nothing_is_imported_by_asking(run: Runner) -> None:
    assert run.fresh("framework_state.imported_by_asking") == {"asked": len(KNOWN), "new": []}


@pytest.mark.parametrize("module", KNOWN)
def test_the_line_to_type_is_python_and_names_the_device(module: str) -> None:
    framework = get(module)
    assert framework is not None
    line = framework.statement_for(3)
    compile(line, "line", "exec")
    assert "3" in line


def test_the_line_for_tensorflow_runs(run: Runner) -> None:
    assert run("framework_statements.in_tensorflow") == "CPU:2"


def test_the_line_for_jax_runs(run: Runner) -> None:
    found = run("framework_statements.in_jax")
    assert found["made on"] == found["third"]
