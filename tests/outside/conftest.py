"""Packages that users have beside gpu_magic, as they install them, on a pretend accelerator."""

from __future__ import annotations

import os

import pytest

from tests.native import SOURCES
from tests.programs.runner import Runner, devices


@pytest.fixture
def npu(pretend: dict[str, str]) -> Runner:
    """Return what runs a function where PyTorch has four devices of the type "npu", a name that these packages know."""
    variables = devices(pretend)
    path = os.pathsep.join([variables["PYTHONPATH"], str(SOURCES / "npu")])
    # DeepSpeed, which accelerate imports where it is installed, wants more of an NPU than there is.
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "DS_ACCELERATOR": "cpu"}
    return Runner({**variables, **quiet, "PYTHONPATH": path, "GPU_MAGIC_PRETEND_AS": "npu"})
