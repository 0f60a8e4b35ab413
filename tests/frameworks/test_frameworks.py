"""What we ask of a framework, asked of the real ones; each program in a process of its own."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

import pytest

from gpu_magic.frameworks import KNOWN, get, imported, started

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.programs.runner import Runner


def names(frameworks):
    return [framework.name for framework in frameworks]


def tensorflow_on_the_cpu():
    found = {"imported before": names(imported())}
    import tensorflow as tf

    def devices():
        """Return what we look for, where TensorFlow keeps it."""
        context = sys.modules["tensorflow.python.eager.context"]._context
        return getattr(context, "_logical_devices", None)

    found["imported after"] = names(imported())
    found["has devices when imported"] = bool(devices())
    tf.constant(1)
    return {**found, "has devices when started": bool(devices()), "started": list(started())}


def jax_on_the_cpu():
    found = {"imported before": names(imported())}
    import jax

    def devices():
        """Return what we look for, where JAX keeps it."""
        return jax._src.xla_bridge._backends

    found["imported after"] = names(imported())
    found["has devices when imported"] = bool(devices())
    jax.devices()
    return {**found, "has devices when started": bool(devices()), "started": list(started())}


def torch_imported():
    import torch

    return {
        "imported": names(imported()),
        "started": list(started()),
        "CUDA is initialized": torch.cuda.is_initialized(),
    }


def half_imported_or_blocked():
    sys.modules |= {"torch": types.ModuleType("torch"), "torch.cuda": types.ModuleType("torch.cuda")}
    sys.modules |= {"jax": types.ModuleType("jax"), "jax._src.xla_bridge": types.ModuleType("bridge")}
    sys.modules["jax._src.xla_bridge"]._backends = 7
    sys.modules["tensorflow"] = None
    return {"imported": names(imported()), "started": list(started())}


def imported_by_asking():
    """Return the packages that are imported when all frameworks are asked, apart from Python's and ours."""
    before = set(sys.modules)
    started()
    imported()
    asked = [get(module) for module in KNOWN]
    for framework in asked:
        framework.has_gpu()
        framework.statement_for(1)
    new = {name.partition(".")[0] for name in set(sys.modules) - before}
    return {"asked": len(asked), "new": sorted(new - sys.stdlib_module_names - {"gpu_magic"})}


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("JAX", jax_on_the_cpu),
        pytest.param("TensorFlow", tensorflow_on_the_cpu, marks=pytest.mark.nightly),
    ],
)
def test_a_framework_that_has_started_on_the_cpu_has_no_gpu(
    run: Runner, name: str, program: Callable[[], Any]
) -> None:
    """And the place where it keeps its devices is still where we look for them."""
    found = run.fresh(program)
    assert name in found.pop("imported after")  # TensorFlow imports others
    assert found == {
        "imported before": [],
        "has devices when imported": False,
        "has devices when started": True,
        "started": [],
    }


def test_pytorch_s_flag_is_read_and_its_cuda_not_started(run: Runner) -> None:
    found = run.fresh(torch_imported, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert found == {"imported": ["PyTorch"], "started": [], "CUDA is initialized": False}


def test_a_framework_that_is_half_imported_or_blocked_does_no_harm(run: Runner) -> None:
    assert run(half_imported_or_blocked) == {"imported": [], "started": []}


def test_nothing_is_imported_by_asking(run: Runner) -> None:
    assert run.fresh(imported_by_asking) == {"asked": len(KNOWN), "new": []}


@pytest.mark.parametrize("module", KNOWN)
def test_the_line_to_type_is_python_and_names_the_device(module: str) -> None:
    framework = get(module)
    assert framework is not None
    line = framework.statement_for(3)
    compile(line, "line", "exec")
    assert "3" in line
