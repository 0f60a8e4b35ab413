"""Functions in processes of their own, with the real frameworks, and on a machine of four GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.machine import CARDS, Driver, environment
from tests.programs.runner import Runner, devices

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def four_gpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the state of a machine of four GPUs, which no test changes."""
    state = tmp_path_factory.mktemp("machine") / "state"
    Driver(CARDS).write(state)
    return state


@pytest.fixture
def on_four_gpus(native: Path, four_gpus: Path, pretend: dict[str, str]) -> Runner:
    """Return what runs a program on a machine of four GPUs with its pretended driver."""
    return Runner({**environment(native, four_gpus), **devices(pretend)})
