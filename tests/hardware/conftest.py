"""A machine of two GPUs that are alike, beneath the runner of claims."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.machine import CARDS, Driver, clean_environment, environment

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CLAIMED"]


# What the stand-ins can play, quick ones.
CLAIMED = (
    "driver.before_and_after",
    "driver.empty_mask",
    "masks.reads:quotes",
    "masks.reads:reversed",
    "order.alike",
    "choosing.too_late",
)


@pytest.fixture
def machine(native: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a test whose subprocesses have the stand-ins for a driver."""
    state = tmp_path / "machine"
    Driver(tuple(replace(card, energy=10_000_000) for card in CARDS[:2])).write(state)
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    for name, value in environment(native, state).items():
        monkeypatch.setenv(name, value)
    return tmp_path
