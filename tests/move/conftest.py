"""Programs of tests/programs, with the real frameworks on devices that are not GPUs."""

from __future__ import annotations

import pytest

from tests.programs.runner import Runner, devices


@pytest.fixture
def run(pretend: dict[str, str]) -> Runner:
    """Return what runs a program where each framework has four devices."""
    return Runner(devices(pretend))
