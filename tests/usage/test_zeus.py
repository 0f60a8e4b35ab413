"""Joules are those that zeus measures over the same driver."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.machine import CARDS, GIB, Driver, environment
from tests.programs.runner import Runner

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("milliwatts", [56_000, 391_000])
def test_joules_are_zeus_joules(native: Path, tmp_path: Path, milliwatts: int) -> None:
    card = replace(CARDS[0], milliwatts=milliwatts, energy=7_000_000, processes=((1, GIB, 30),))
    state = tmp_path / "machine"
    Driver((card, CARDS[1])).write(state)
    zeus, ours, wall = Runner(environment(native, state)).fresh("usage_zeus.joules", 1.0)
    # We read before and after the block, and zeus before and after us; the counter is up to a step of 0.1 s behind.
    assert milliwatts / 1000 * (wall - 0.1) - 0.01 <= ours <= zeus + 0.01
