"""PyTorch that is built without CUDA: a choice of GPUs does nothing for it, and that is said.

TensorFlow and JAX are beside it in test_settings_imported.py.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpu_magic import choose
from gpu_magic.testing import simulate
from tests.conftest import torch_build
from tests.machine import CARDS, Driver, environment
from tests.programs.runner import Runner

if TYPE_CHECKING:
    from pathlib import Path


def chosen() -> list[list[str]]:
    """Return what is said of a GPU where no framework is imported, and with PyTorch, also on a simulated machine."""
    found = [str(choose("1")).splitlines()]
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    import torch  # noqa: F401 - it is to be imported

    found.append(str(choose("1")).splitlines())
    with simulate("2xT4"):
        return [*found, str(choose("1")).splitlines()]


def test_a_choice_says_how_to_install_it_with_cuda(native: Path, tmp_path: Path) -> None:
    Driver(CARDS).write(tmp_path / "machine")
    before, (gpu, *said), simulated = Runner(environment(native, tmp_path / "machine"))(chosen)
    assert before == [gpu]
    assert gpu.startswith("cuda:0 = GPU 1")
    assert not any("without CUDA" in line for line in simulated)
    if torch_build()[1]:
        assert said == []
    else:
        assert said[0].startswith("PyTorch ")
        assert "uses no GPU" in said[0]
        assert "pip install --force-reinstall torch," in said[0]
