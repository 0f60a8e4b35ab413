"""What is sent of a machine: enough to follow it, and nothing else."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_magic.gpus.apply import apply
from gpu_magic.process.given import Given
from gpu_magic.process.session import current
from gpu_magic.process.view import take_snapshot
from gpu_magic.testing import Machine, simulate
from gpu_magic.widget.serialization import SerializedMachine, serialize

PEOPLE = st.sampled_from(["maria", "chen", "<b>tom</b>"])


@st.composite
def happenings(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Draw what people, the driver and this process do to a machine."""
    gpu = st.integers(0, 3)
    one = st.one_of(
        st.tuples(st.just("run"), gpu, PEOPLE, st.integers(0, 40), st.integers(0, 100)),
        st.tuples(st.just("lose"), gpu),
        st.tuples(st.just("recover"), gpu),
        st.tuples(st.just("choose"), st.sampled_from(["0", "2,1", "none", "reset", "auto"])),
    )
    return draw(st.lists(one, min_size=1, max_size=8))


def happen(machine: Machine, what: tuple[Any, ...]) -> None:
    match what:
        case ("run", gpu, owner, gib, work):
            machine.gpus[gpu].run("train.py", owner, gib << 30, work=work)
        case ("lose", gpu):
            machine.gpus[gpu].lose()
        case ("recover", gpu):
            machine.gpus[gpu].lost = False
        case ("choose", wanted):
            with contextlib.suppress(ValueError):
                apply(current(), wanted)


def look() -> SerializedMachine:
    inventory = take_snapshot(current())
    return serialize(inventory, Given(inventory, current().inherited), current().memory_options)


def follow(page: dict[str, Any], message: dict[str, Any]) -> None:
    """Do with a message what store.js does with it."""
    page["header"].update(message["header"])
    for key, fields in message["rows"].items():
        page["rows"][key].update(fields)
    page["figures"].update(message["figures"])


@settings(max_examples=60, deadline=None)
@given(happenings())
def test_a_page_that_gets_the_changes_has_the_whole(events: list[tuple[Any, ...]]) -> None:
    with simulate("4xA100-80GB", clock=lambda: 0.0) as machine:
        before = look()
        page = json.loads(json.dumps(before._asdict()))
        for event in events:
            happen(machine, event)
            now = look()
            changes = now.since(before)
            assert changes is not None
            follow(page, json.loads(json.dumps(changes._asdict())))
            assert page == json.loads(json.dumps(now._asdict()))
            assert now.since(now) == ({}, {}, {})
            before = now


def test_other_rows_are_sent_as_a_whole() -> None:
    with simulate("2xA100-80GB"):
        two = look()
    with simulate("1xA100-80GB(3g.40gb,4g.40gb)+1xA100-80GB"):
        split = look()
    assert split.since(two) is None
    assert [key[:4] for key in split.rows] == ["0", "MIG-", "MIG-", "1"]
    assert split.header["least_busy"] == "1"  # what is split can't be picked while a whole one can


def test_of_instances_the_least_busy_one_alone_can_be_picked() -> None:
    with simulate("1xA100-80GB(3g.40gb,4g.40gb)"):
        assert look().header["least_busy"].count("MIG-") == 1
