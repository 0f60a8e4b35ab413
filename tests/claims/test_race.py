"""Many processes that choose in the same moment."""

from __future__ import annotations

import fcntl
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.claims.racing import Race
from tests.conftest import ROOT
from tests.machine import CARDS, Driver, clean_environment, environment
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

EIGHT = (*CARDS, *(replace(card, uuid=f"{card.uuid[:-1]}c", bus_id=f"1{card.bus_id[1:]}") for card in CARDS))
UUIDS = sorted(card.uuid for card in EIGHT)


@pytest.fixture
def race(native: Path, tmp_path: Path) -> Iterator[Callable[[int], Race]]:
    """Return a way to have so many processes, on a machine of eight GPUs."""
    Driver(EIGHT).write(tmp_path / "machine")
    variables = clean_environment() | environment(native, tmp_path / "machine")
    variables |= {"PYTHONPATH": str(ROOT), "GPU_MAGIC_CLAIMS": str(tmp_path / "claims")}
    started: list[Race] = []

    def start(count: int) -> Race:
        started.append(Race(count, variables))
        return started[-1]

    yield start
    for one in started:
        one.kill()


def all_are_picked(racers: Race, request: str, uuids: list[str] = UUIDS) -> list[str]:
    """Let racers choose until none of some GPUs is left over; return what those say that have none.

    On a slow machine some say that others claim the same GPUs just then, and choose again.
    """
    refused: list[str] = []

    def is_none_left() -> bool:
        chosen, refused[:] = racers.ask(request)
        assert len(chosen) == len(set(chosen)), "two processes have picked the same GPU"
        return sorted(chosen) == uuids

    until(is_none_left)
    return refused


@pytest.mark.parametrize("count", [16, pytest.param(64, marks=pytest.mark.nightly)])
def test_each_of_eight_gpus_goes_to_one_of_many_processes(race: Callable[[int], Race], count: int) -> None:
    racers = race(count)
    refused = all_are_picked(racers, "auto:1")
    assert len(refused) == count - len(EIGHT)
    assert "\\n" not in "".join(refused)
    racers.ask("reset")
    all_are_picked(racers, "auto:2")
    racers.ask("reset")
    assert len(all_are_picked(racers, "3,1 --only-free", [CARDS[1].uuid, CARDS[3].uuid])) == count - 1


def test_processes_that_are_killed_while_they_choose_hold_nobody_up(race: Callable[[int], Race]) -> None:
    for _ in range(2):
        racers = race(8)
        racers.say("auto:1")
        racers.kill()
    assert not all_are_picked(race(len(EIGHT)), "auto:1")


def test_without_turns_no_two_pick_the_same(race: Callable[[int], Race], tmp_path: Path) -> None:
    """Somebody keeps the lock by which processes take turns, or is so slow that nobody waits for it."""
    racers = race(len(EIGHT) + 1)
    racers.ask("0")  # the folder is there now
    racers.ask("reset")
    folder = os.open(tmp_path / "claims", os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        all_are_picked(racers, "auto:1")
        racers.ask("reset")
        all_are_picked(racers, "2 --only-free", [CARDS[2].uuid])
    finally:
        os.close(folder)
