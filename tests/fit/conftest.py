"""Programs of tests/programs, with the real frameworks on the CPU, over a simulated machine."""

from __future__ import annotations

import pytest

from tests.programs.runner import Runner


@pytest.fixture
def run() -> Runner:
    """Return what runs a program in a process that has imported its frameworks."""
    return Runner({})
