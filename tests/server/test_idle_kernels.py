"""Which kernels are culled: the decision, with the clock set forward."""

from __future__ import annotations

from typing import Any

import pytest
from traitlets.config import Config

from gpu_magic.devices.model import UNKNOWN, Unknown
from gpu_magic.errors import ChoiceError
from gpu_magic.server.idle_kernels import GpuMagic, IdleKernels, Rule, Use, uses_of

HOUR, MINUTE, STEP = 3600, 60, 5
FOUR_HOURS = Rule(4 * HOUR, 15 * MINUTE, parks=False)


class Time:
    """A clock, and a server that looks at one kernel every five seconds."""

    def __init__(self, rule: Rule = FOUR_HOURS, last_cell: float = 1000.0) -> None:
        self.now, self.last_cell = 1000.0, last_cell
        self.kernels = IdleKernels(rule, lambda: self.now)
        self.over: list[str] = []
        self.look(1 << 30)

    def look(self, memory: int | Unknown, **use: Any) -> None:
        idle = use.get("idle", int(self.now - self.last_cell))
        self.over = self.kernels.look({"k": Use(memory, idle, ("GPU 0",))})

    def pass_by(self, seconds: float, memory: int | Unknown = 1 << 30, **use: Any) -> None:
        """Let time pass with looks. `idle` is since the last cell, unless it is given."""
        for _ in range(round(seconds / STEP)):
            self.now += STEP
            self.look(memory, **use)

    @property
    def left(self) -> float | None:
        """The seconds that the page shows; None: no warning."""
        return self.kernels.warned().get("k")

    def shown(self) -> tuple[float | None, list[str]]:
        return self.left, self.over


def test_it_is_warned_of_and_then_its_time_is_over() -> None:
    time = Time()
    time.pass_by(4 * HOUR - 15 * MINUTE - STEP)
    assert time.shown() == (None, [])
    time.pass_by(STEP)
    assert time.shown() == (15 * MINUTE, [])
    time.pass_by(15 * MINUTE - STEP)
    assert time.shown() == (STEP, [])
    time.pass_by(STEP)
    assert time.shown() == (0, ["k"])


def test_used_again_in_the_warning_it_stays() -> None:
    time = Time()
    time.pass_by(4 * HOUR - STEP)
    assert time.left == STEP
    time.last_cell = time.now
    time.pass_by(STEP)
    assert time.shown() == (None, [])
    time.pass_by(4 * HOUR - STEP)
    assert time.over == ["k"]


def test_kept_it_has_the_whole_time_again() -> None:
    time = Time()
    time.pass_by(4 * HOUR - STEP)
    time.kernels.keep("k")
    assert time.left is None
    time.pass_by(4 * HOUR - STEP)
    assert time.over == []
    assert time.left == STEP
    time.pass_by(STEP)
    assert time.over == ["k"]
    time.kernels.keep("unknown")  # nothing


@pytest.mark.parametrize("use", [{"idle": UNKNOWN}, {"memory": UNKNOWN}, {"memory": 0}], ids=str)
def test_one_look_that_shows_no_rest_starts_the_time_again(use: dict[str, Any]) -> None:
    time = Time()
    time.pass_by(4 * HOUR - STEP)
    time.pass_by(STEP, **use)
    assert time.shown() == (None, [])
    time.pass_by(4 * HOUR)  # from the next look, however long its last cell is ago
    assert time.over == []
    time.pass_by(STEP)
    assert time.over == ["k"]


def test_the_work_of_a_time_without_looks_is_unknown() -> None:
    """The server was stopped, or the driver hung: a child can have trained meanwhile."""
    time = Time()
    time.pass_by(4 * HOUR - STEP)
    time.now += MINUTE
    time.pass_by(STEP)
    assert time.shown() == (None, [])
    time.now -= HOUR
    time.pass_by(STEP)
    assert time.over == []


def test_a_kernel_that_was_idle_before_the_first_look_has_the_whole_time() -> None:
    time = Time(last_cell=1000.0 - 9 * HOUR)
    time.pass_by(4 * HOUR - STEP)
    assert time.over == []
    time.pass_by(STEP)
    assert time.over == ["k"]


def test_without_a_warning_it_just_ends() -> None:
    time = Time(Rule(HOUR, 0, parks=False))
    time.pass_by(HOUR)
    assert time.over == ["k"]


def test_a_kernel_that_was_asked_to_park_is_left_alone_until_its_next_use() -> None:
    time = Time(FOUR_HOURS._replace(parks=True))
    time.pass_by(4 * HOUR)
    assert time.over == ["k"]
    time.kernels.leave_alone("k")
    time.last_cell = time.now  # its answer counts as activity
    time.pass_by(9 * HOUR)
    assert time.shown() == (None, [])
    time.last_cell = time.now
    time.pass_by(4 * HOUR)
    assert time.over == []
    time.pass_by(STEP)
    assert time.over == ["k"]


@pytest.mark.parametrize("use", [{"idle": UNKNOWN}, {"memory": UNKNOWN}], ids=str)
def test_an_unknown_look_is_no_use_of_a_kernel_that_was_asked_to_park(use: dict[str, Any]) -> None:
    time = Time(FOUR_HOURS._replace(parks=True))
    time.pass_by(4 * HOUR)
    time.kernels.leave_alone("k")
    time.pass_by(STEP, **({"memory": 1 << 30} | use))
    time.pass_by(9 * HOUR)
    assert time.shown() == (None, [])


def answer(*kernels: dict[str, Any], lists_processes: bool = True) -> dict[str, Any]:
    gpus = [
        {
            "label": f"GPU {number}",
            "is_split": False,
            "kernels": {"k": {"is_parked": False} | one} if one else {},
        }
        for number, one in enumerate(kernels)
    ]
    return {"gpus": gpus, "lists_processes": lists_processes}


def test_what_a_kernel_has_is_added_up() -> None:
    claimed, two, three = ({"memory": size, "idle": 7} for size in (0, 2, 3))
    unknown = {"memory": None, "idle": None}
    assert uses_of(answer(claimed, two, {}, three)) == {"k": Use(5, 7, ("GPU 1", "GPU 3"))}
    assert uses_of(answer(two, unknown))["k"].memory is UNKNOWN
    assert uses_of(answer(unknown))["k"].idle is UNKNOWN
    # It can work on a GPU whose processes the driver does not list.
    assert uses_of(answer(two, lists_processes=False))["k"].idle is UNKNOWN
    split = answer(two)
    split["gpus"][0]["is_split"] = True
    assert uses_of(split) == {}


def test_a_kernel_that_is_parked_is_no_candidate() -> None:
    two, parked = {"memory": 2, "idle": 7}, {"memory": 1, "idle": 7, "is_parked": True}
    assert uses_of(answer(parked, parked)) == {}
    assert uses_of(answer(parked, two)) == {"k": Use(3, 7, ("GPU 0", "GPU 1"))}


def options(**given: Any) -> GpuMagic:
    return GpuMagic(config=Config({"GpuMagic": given}))


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({}, None),
        ({"cull_idle_gpu": 0}, None),
        ({"cull_idle_gpu": "0"}, None),
        ({"cull_idle_gpu": None}, None),
        ({"cull_idle_gpu": "Off"}, None),
        ({"cull_idle_gpu": "4h", "cull_idle_gpu_warn": "off"}, Rule(4 * HOUR, 0, parks=False)),
        ({"cull_idle_gpu": "", "cull_idle_gpu_warn": "nonsense"}, None),
        ({"cull_idle_gpu": "4h"}, FOUR_HOURS),
        ({"cull_idle_gpu": 14_400, "cull_idle_gpu_warn": 900}, FOUR_HOURS),
        ({"cull_idle_gpu": "park:4h"}, FOUR_HOURS._replace(parks=True)),
        ({"cull_idle_gpu": " park: 4 h", "cull_idle_gpu_warn": "0"}, Rule(4 * HOUR, 0, parks=True)),
    ],
)
def test_options(given: dict[str, Any], rule: Rule | None) -> None:
    assert options(**given).rule() == rule


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"cull_idle_gpu": "4x"}, '\'4x\' is not a time, so no kernel is culled. Try "4h" or "park:4h"'),
        ({"cull_idle_gpu": "park:"}, "'' is not a time"),
        ({"cull_idle_gpu": True}, "'True' is not a time"),
        ({"cull_idle_gpu": -5}, "'-5' is not a time"),
        ({"cull_idle_gpu": "4h", "cull_idle_gpu_warn": "soon"}, "cull_idle_gpu_warn = 'soon' is not a time"),
        (
            {"cull_idle_gpu": "10m"},
            "cull_idle_gpu_warn = '15m' is not shorter than cull_idle_gpu = '10m' (10 min), so no kernel is culled. "
            'Try a longer cull_idle_gpu, such as "4h", or cull_idle_gpu_warn = 0',
        ),
    ],
)
def test_an_invalid_option_turns_it_off_and_is_told_in_one_line(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ChoiceError) as found:
        options(**given).rule()
    assert says in str(found.value)
    assert "\n" not in str(found.value)
