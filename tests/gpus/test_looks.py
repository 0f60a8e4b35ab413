"""What `auto` decides by if the machine changes while it looks at it three times."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

import gpu_magic
from gpu_magic.gpus.options import Options
from gpu_magic.gpus.wait import Waiting
from gpu_magic.launch.devices import pick
from gpu_magic.process.session import current
from gpu_magic.testing import Machine, simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GIB = 1 << 30


@contextmanager
def changing(machine: Machine, change: Callable[[], object]) -> Iterator[None]:
    """Change the simulated machine in the second of three looks at it."""
    changes = [change]

    def clock() -> float:  # the figures that are read depend on it
        if changes and pynvml.nvmlLib.calls["nvmlDeviceGetPowerUsage"] > len(machine.gpus):
            changes.pop()()
        return 0.0

    machine.clock = clock
    with simulate(machine):
        yield
        assert not changes


WAYS: dict[str, Callable[[], Any]] = {
    "choose": lambda: gpu_magic.choose("auto", only_free=True),
    "dry run": lambda: gpu_magic.choose("auto", dry_run=True),
    "wait": lambda: gpu_magic.choose("auto", wait="1s"),
    "wait_for": lambda: asyncio.run(gpu_magic.wait_for(1)),
    "launch": lambda: pick(current(), "auto", None),
    "launch that waits": lambda: pick(current(), "auto", None, wait="1s"),
}


@pytest.mark.parametrize("change", ["is used", "is lost"])
@pytest.mark.parametrize("way", WAYS)
def test_a_gpu_that_the_last_look_shows_used_or_lost_is_not_picked(way: str, change: str) -> None:
    machine = Machine("2xA100-80GB")
    first = machine.gpus[0]
    with changing(machine, first.lose if "lost" in change else lambda: first.run("a.py", "maria", 60 * GIB)):
        assert [gpu.index for gpu in WAYS[way]().devices] == [1]


def test_the_wait_of_a_panel_is_not_over_if_the_last_look_shows_use() -> None:
    machine = Machine("2xA100-80GB")
    with changing(machine, lambda: machine.gpus[0].run("train.py", "maria", 60 * GIB)):
        assert not Waiting(current(), "0", Options(), None).look()


def test_work_that_only_an_earlier_look_shows_counts() -> None:
    machine = Machine("2xA100-80GB")
    works = machine.gpus[0].run("train.py", "maria", GIB, work=90)
    machine.gpus[1].run("train.py", "tom", GIB, work=20)
    with changing(machine, lambda: setattr(works, "work", 0)):
        assert [gpu.index for gpu in gpu_magic.choose("auto").devices] == [1]
