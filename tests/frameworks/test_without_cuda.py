"""Frameworks that are built without CUDA: a choice of GPUs does nothing for them, and that is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conftest import torch_build
from tests.machine import CARDS, Driver, environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Fresh

CHOOSE = """
import gpu_magic, {module}
print(gpu_magic.choose({request!r}))
"""


@pytest.fixture
def drivers(native: Path, tmp_path: Path) -> dict[str, str]:
    """A machine of four GPUs that exists as far as the driver's libraries say."""
    Driver(CARDS).write(tmp_path / "machine")
    return environment(native, tmp_path / "machine") | {"TF_CPP_MIN_LOG_LEVEL": "3"}


@pytest.mark.parametrize(
    ("module", "name", "command"),
    [
        ("torch", "PyTorch", "pip install --force-reinstall torch,"),
        ("tensorflow", "TensorFlow", 'pip install "tensorflow[and-cuda]",'),
        ("jax", "JAX", 'pip install -U "jax[cuda13]"'),
    ],
)
def test_a_choice_says_how_to_install_a_framework_with_cuda(
    fresh: Fresh, drivers: dict[str, str], module: str, name: str, command: str
) -> None:
    chosen, *lines = fresh(CHOOSE.format(module=module, request="1"), **drivers).splitlines()
    assert chosen.startswith("cuda:0 = GPU 1")
    if module == "torch" and torch_build()[1]:
        assert lines == []
        return
    said = lines[0]
    assert said.startswith(f"{name} ")
    assert "uses no GPU" in said
    assert command in said


def test_a_choice_of_no_gpu_says_nothing_of_it(fresh: Fresh, drivers: dict[str, str]) -> None:
    assert "without CUDA" not in fresh(CHOOSE.format(module="torch", request="none"), **drivers)


def test_a_framework_that_is_not_imported_is_not_named(fresh: Fresh, drivers: dict[str, str]) -> None:
    assert "without CUDA" not in fresh(CHOOSE.format(module="math", request="1"), **drivers)


def test_on_a_simulated_machine_nothing_is_said_of_it(fresh: Fresh) -> None:
    shown = fresh(CHOOSE.format(module="torch", request="1"), GPU_MAGIC_SIMULATE="2xT4")
    assert "without CUDA" not in shown


def test_nothing_is_said_where_pytorch_has_an_accelerator(
    fresh: Fresh, drivers: dict[str, str], pretend: dict[str, str]
) -> None:
    shown = fresh(CHOOSE.format(module="torch", request="1"), **drivers, **pretend)
    assert "without CUDA" not in shown
