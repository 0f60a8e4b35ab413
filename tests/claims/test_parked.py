"""What claims say of a process that has moved its variables to the host's memory."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from gpu_magic.claims.held import Claims, PickedTwiceError
from gpu_magic.process.parked import parked
from tests.claims.holders import GPU, OTHER, holder, stranger
from tests.eight_gpus import EightGpus, registered

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Typed

pytestmark = pytest.mark.usefixtures("folder")

PARKED = "claims = Claims(is_at_work=lambda: False, is_parked=lambda: state[0])"
BEGIN = f"globals().update(state=[False])\nexec({PARKED!r}, globals())"
IS_PARKED = {GPU: [True], OTHER: [True]}
IS_NOT = {GPU: [False], OTHER: [False]}


def seen() -> dict[str, list[bool]]:
    return {uuid: [claim.is_parked for claim in claims] for uuid, claims in Claims().others().items()}


def test_another_process_sees_that_one_is_parked_until_it_is_so_no_more() -> None:
    with stranger() as one:
        one.run(BEGIN)
        one.run(f"claims.hold([{GPU!r}, {OTHER!r}])")
        assert seen() == IS_NOT
        for is_parked, found in ((True, IS_PARKED), (False, IS_NOT), (True, IS_PARKED)):
            one.run(f"state[0] = {is_parked}")
            one.run("claims.publish_activity()")
            assert seen() == found
        one.run(f"claims.hold([{OTHER!r}])")  # claims it as the first now
        assert seen() == {OTHER: [True]}
        one.run(f"claims.hold([{GPU!r}, {OTHER!r}])")
        assert seen() == IS_PARKED
    assert seen() == {}  # with its end


def test_when_it_ran_its_last_cell_is_told_as_before() -> None:
    with stranger() as one:
        one.run(BEGIN)
        one.run(f"state[0] = True; claims.hold([{GPU!r}, {OTHER!r}])")
        (idle,) = {claim.idle for claims in Claims().others().values() for claim in claims}
        assert isinstance(idle, int)


def test_what_another_version_has_claimed_is_not_parked() -> None:
    with holder(GPU, OTHER):
        assert seen() == IS_NOT


def test_a_device_on_which_a_command_of_a_parked_process_runs_is_not_given_up() -> None:
    with stranger() as one:
        one.run(BEGIN)
        one.run(f"state[0] = True; claims.hold([{GPU!r}, {OTHER!r}])")
        one.run("globals().update(command=Claims('train.py', is_at_work=lambda: True))")
        one.run(f"command.hold([{GPU!r}])")
        assert seen() == {GPU: [False], OTHER: [True]}


def test_what_is_parked_can_be_claimed_as_if_nobody_had_it_and_what_is_not_can_not() -> None:
    with stranger() as one:
        one.run(BEGIN)
        one.run(f"state[0] = True; claims.hold([{GPU!r}])")
        Claims().hold([GPU], unclaimed=True)
        one.run("state[0] = False; claims.publish_activity()")
        with pytest.raises(PickedTwiceError):
            Claims().hold([GPU], unclaimed=True)


# In a notebook


@pytest.fixture
def framework(typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EightGpus]:
    """Return a framework whose arrays a notebook has on a GPU that it claims, with another GPU."""
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "4xA100-80GB clock=0")
    with registered(tmp_path) as one:
        one.free = 1 << 40
        typed("%gpus 1,2")
        typed("from tests.eight_gpus import Array\nx, y = Array(0), Array(0)")
        yield one
    parked.replace(())


def modes(folder: Path) -> list[int]:
    return sorted(stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir())


NOT_PARKED, ALL_PARKED = [0o644, 0o744], [0o645, 0o745]


def test_a_notebook_is_parked_from_gpu_park_to_gpu_unpark(
    framework: EightGpus, typed: Typed, folder: Path
) -> None:
    assert modes(folder) == NOT_PARKED
    typed("%gpu_park x")  # not all
    assert modes(folder) == NOT_PARKED
    typed("%gpu_park")
    assert modes(folder) == ALL_PARKED
    typed("print(1)")
    assert modes(folder) == ALL_PARKED
    typed("%gpu_unpark x")  # something is on a GPU again
    assert modes(folder) == NOT_PARKED
    typed("%gpu_park")
    assert modes(folder) == ALL_PARKED
    typed("%gpu_unpark")
    assert modes(folder) == NOT_PARKED


def test_a_notebook_whose_variables_were_not_all_searched_is_not_parked(
    framework: EightGpus, typed: Typed, folder: Path
) -> None:
    typed(
        "from types import SimpleNamespace\nmany = [SimpleNamespace(inner=[one]) for one in range(150_000)]"
    )
    assert "Not searched in full" in typed("%gpu_park").text
    assert modes(folder) == NOT_PARKED


@pytest.mark.parametrize("cell", ["framework.reserved = 2 << 20", "del x, y", "x.ordinal = y.ordinal = 0"])
def test_what_a_cell_brings_to_a_gpu_ends_it(
    framework: EightGpus, typed: Typed, folder: Path, cell: str
) -> None:
    framework.reserved = 1 << 20  # stays
    typed("%gpu_park")
    assert modes(folder) == ALL_PARKED
    typed(f"from tests.eight_gpus import FRAMEWORK as framework\n{cell}")
    assert modes(folder) == NOT_PARKED


def test_what_stayed_and_has_gone_may_not_come_back_unseen(
    framework: EightGpus, typed: Typed, folder: Path
) -> None:
    framework.reserved = 4 << 20
    typed("%gpu_park")
    for size, expected in ((1, ALL_PARKED), (3, NOT_PARKED)):
        typed(f"from tests.eight_gpus import FRAMEWORK as framework\nframework.reserved = {size} << 20")
        assert modes(folder) == expected


def test_gpu_ps_names_it(framework: EightGpus, typed: Typed) -> None:
    typed("%gpu_park")
    assert "this kernel, parked" in typed("print(__import__('gpu_magic').my_processes())").text
    typed("%gpu_unpark")
    assert ", parked" not in typed("print(__import__('gpu_magic').my_processes())").text
