"""Many processes that choose in the same moment."""

from __future__ import annotations

import fcntl
import os
import random
from typing import TYPE_CHECKING

import pytest

from tests.claims.racing import Racer, ask_all
from tests.conftest import ROOT
from tests.machine import CARDS, Driver, clean_environment, environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RACERS, ROUNDS = 16, 3


@pytest.fixture
def race(native: Path, tmp_path: Path) -> Iterator[Callable[[int], list[Racer]]]:
    """Return a way to have so many processes, on a machine of four GPUs."""
    Driver(CARDS).write(tmp_path / "machine")
    variables = clean_environment() | environment(native, tmp_path / "machine")
    variables |= {"PYTHONPATH": str(ROOT), "GPU_MAGIC_CLAIMS": str(tmp_path / "claims")}
    started: list[Racer] = []

    def start(count: int) -> list[Racer]:
        racers = [Racer(variables) for _ in range(count)]
        started.extend(racers)
        assert {racer.hear() for racer in racers} == {"ready"}
        return racers

    yield start
    for racer in started:
        racer.kill()


def test_no_two_processes_pick_the_same_gpu(race: Callable[[int], list[Racer]]) -> None:
    racers = race(RACERS)
    for _ in range(ROUNDS):
        uuids, lines = ask_all(racers, "auto:1")
        assert sorted(uuids) == [card.uuid for card in CARDS]
        assert len(lines) == RACERS - len(CARDS)
        assert all("none can be picked; not GPU 0" in line and "\\n" not in line for line in lines)
        ask_all(racers, "reset")


def test_two_at_a_time_leave_none_over(race: Callable[[int], list[Racer]]) -> None:
    racers = race(RACERS)
    for _ in range(ROUNDS):
        uuids, _ = ask_all(racers, "auto:2")
        assert sorted(uuids) == [card.uuid for card in CARDS]
        ask_all(racers, "reset")


def test_a_free_gpu_that_is_named_goes_to_one_alone(race: Callable[[int], list[Racer]]) -> None:
    racers = race(RACERS)
    for _ in range(ROUNDS):
        uuids, lines = ask_all(racers, "3,1 --only-free")
        assert uuids == [CARDS[3].uuid, CARDS[1].uuid]
        assert len(lines) == RACERS - 1
        assert all("Not free: GPU 3 and GPU 1 (claimed by" in line for line in lines)
        ask_all(racers, "reset")


def test_processes_that_are_killed_while_they_choose_hold_nobody_up(
    race: Callable[[int], list[Racer]],
) -> None:
    for _ in range(ROUNDS):
        racers = race(8)
        for racer in racers:
            racer.say("auto:1")
        for racer in random.sample(racers, len(racers)):
            racer.kill()
        others = race(len(CARDS))
        uuids, lines = ask_all(others, "auto:1")
        assert sorted(uuids) == [card.uuid for card in CARDS]
        assert not lines
        ask_all(others, "reset")


def test_without_turns_no_two_pick_the_same(race: Callable[[int], list[Racer]], tmp_path: Path) -> None:
    """Somebody keeps the lock by which processes take turns; what is claimed is still claimed once."""
    racers = race(6)
    ask_all(racers, "0")  # the folder is there now
    ask_all(racers, "none")
    folder = os.open(tmp_path / "claims", os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        uuids, lines = ask_all(racers, "auto:1")
        ask_all(racers, "none")
        named, _ = ask_all(racers, "2 --only-free")
    finally:
        os.close(folder)
    assert sorted(uuids) == [card.uuid for card in CARDS]
    assert len(lines) == len(racers) - len(CARDS)
    assert named == [CARDS[2].uuid]
