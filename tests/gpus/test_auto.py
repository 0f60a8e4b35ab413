"""Which devices `auto` picks, and what it says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_magic.devices.model import UNKNOWN, Claim, Gpu, GpuProcess, GpuStatus
from gpu_magic.errors import ChoiceError, NotFreeError
from gpu_magic.gpus.auto import pick
from gpu_magic.gpus.options import Options
from gpu_magic.gpus.request import parse
from gpu_magic.gpus.select import select
from gpu_magic.gpus.table import as_text
from gpu_magic.process.view import Snapshot
from tests.gpus.machines import GIB, UUIDS, gpu, machine, split

if TYPE_CHECKING:
    from gpu_magic.devices.model import Inventory

CLAIM = Claim("maria", 0.0, 4711, "train.ipynb")


def claimed(whole: Gpu) -> Gpu:
    return whole._replace(status=whole.status._replace(claims=(CLAIM,)))


def kind(whole: Gpu, name: str, memory: int) -> Gpu:
    """Return a GPU of another kind, of which as much memory is in use."""
    used = whole.status.memory_used
    assert isinstance(used, int)
    status = whole.status._replace(memory_free=memory * GIB - used)
    return whole._replace(name=name, memory_total=memory * GIB, status=status)


def picked(count: int, there: Inventory, **options: Any) -> list[int]:
    """Return the numbers of the GPUs that are picked."""
    devices, _ = pick(count, there.devices, Options(**options))
    return [device.index for device in devices if isinstance(device, Gpu)]


IDLE = gpu(0, 20, 90)
MORE = IDLE._replace(status=IDLE.status._replace(memory_free=(60 << 30) + (1 << 20)))


@pytest.mark.parametrize(
    ("gpus", "numbers"),
    [
        (
            (gpu(0, 0, 100), gpu(1, 1, 0)),
            [1],
        ),  # a free one, before one at full utilization with less memory in use
        ((kind(gpu(0), "NVIDIA T400", 2), gpu(1, 1)), [1]),  # of idle ones that with much memory
        # Of busy ones the most free memory counts, and then the least utilization; a few megabytes decide nothing.
        ((gpu(0, 60, 5), gpu(1, 20, 90), gpu(2, 20, 40)), [2, 1]),
        ((MORE, gpu(1, 20, 40)), [1]),
    ],
)
def test_which_come_first(gpus: tuple[Gpu, ...], numbers: list[int]) -> None:
    assert picked(len(numbers), machine(*gpus)) == numbers


def test_what_somebody_has_is_something_to_wait_for_and_what_no_gpu_has_is_not() -> None:
    whole = split(gpu(1))
    status = GpuStatus(0, 40 * GIB, processes=(), claims=(CLAIM,))
    instance = whole.mig[0]._replace(name="NVIDIA A100 MIG 1g.10gb", status=status)
    with pytest.raises(NotFreeError, match="claimed by maria"):
        pick(1, machine(whole._replace(mig=(instance,))).devices, Options(model="1g"))
    with pytest.raises(NotFreeError):  # exactly the memory that is asked for is enough
        picked(1, machine(claimed(gpu(0))), min_free=80 * GIB)
    for there, options in (
        (claimed(gpu(0)), {"min_free": "200GB"}),
        (claimed(gpu(0)), {"model": "H100"}),
        (kind(gpu(0), "NVIDIA T400", 2), {"model": "T4"}),
    ):
        with pytest.raises(ChoiceError) as caught:
            picked(1, machine(there), **options)
        assert not isinstance(caught.value, NotFreeError)


def test_the_larger_mig_instance_comes_before_the_smaller() -> None:
    whole = split(gpu(0))
    small, large = (
        part._replace(memory_total=size * GIB, status=GpuStatus(0, size * GIB, processes=()))
        for part, size in zip(whole.mig, (10, 40), strict=True)
    )
    there = machine(whole._replace(mig=(small, large)))
    assert pick(1, there.devices)[0] == (large,)


def test_what_another_process_has_claimed_is_not_picked() -> None:
    there = machine(claimed(gpu(0)), gpu(1, 60, 90))
    assert picked(1, there) == [1]
    with pytest.raises(
        ChoiceError, match=r"can pick only 1 GPU. Not available: GPU 0 \(claimed by maria: train"
    ):
        picked(2, there)
    with pytest.raises(ChoiceError, match=r"^auto:1 can pick no GPU. Not available: GPU 0 \(claimed"):
        picked(1, machine(claimed(gpu(0))))
    # What it says to try works now.
    with pytest.raises(ChoiceError, match=r"^auto:3 can pick only 2 GPUs. Try auto:1$"):
        picked(3, there)


def test_memory_of_a_process_that_has_ended_is_in_use() -> None:
    ghost = GpuProcess(4711, memory=32 * GIB, has_ended=True)
    listed = gpu(0, 33, 0)._replace(status=gpu(0, 33, 0).status._replace(processes=(ghost,)))
    assert picked(1, machine(listed, gpu(1))) == [1]
    with pytest.raises(NotFreeError):
        picked(2, machine(listed, gpu(1)), only_free=True)


def test_asking_again_gives_the_same() -> None:
    there = machine(gpu(0), gpu(1), gpu(2))
    assert pick(1, there.devices, held=frozenset({UUIDS[2]}))[0] == (there[2],)
    crowded = machine(gpu(0), gpu(1), gpu(2, 60, 90))  # but not one that others use by now
    assert pick(1, crowded.devices, held=frozenset({UUIDS[2]}))[0] == (crowded[0],)


def test_one_line_says_why_these_and_not_the_others() -> None:
    train = GpuProcess(4711, "train.py", "maria", 30 * GIB)
    busy = gpu(1, 30, 90)._replace(status=(gpu(1, 30, 90).status)._replace(processes=(train,)))
    there = machine(gpu(0), busy, claimed(gpu(2)), gpu(3), kind(gpu(4), "Tesla T4", 15))
    notes = select(parse("auto"), there, (None, None)).notes
    assert notes[0] == (
        f"GPU 0 is free and unclaimed. Not picked: GPU 1 (in use by maria), GPU 2 ({CLAIM}), GPU 3 (also free), "
        "GPU 4 (less free memory)."
    )


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({"min_free": "30GB"}, [0, 2]),
        ({"min_free": 70 * GIB}, [2]),
        ({"min_free": 60 * GIB}, [0, 2]),  # exactly as much as is asked for is enough
        ({"min_free": 80 * GIB}, [2]),
        ({"min_free": 60 * GIB + 1}, [2]),
        ({"model": "A100"}, [0, 1, 2]),
        ({"model": "t4"}, [3]),
        ({"model": "tesla-T4", "min_free": "1GB"}, [3]),
        ({"model": "sxm4 80gb"}, [0, 1, 2]),
        ({"model": "A100SXM4"}, [0, 1, 2]),
    ],
)
def test_bounds_are_kept(options: dict[str, Any], numbers: list[int]) -> None:
    there = machine(gpu(0, 20, 5), gpu(1, 60, 90), gpu(2), kind(gpu(3, 0, 50), "Tesla T4", 15))
    assert sorted(picked(len(numbers), there, **options)) == numbers
    with pytest.raises(ChoiceError):
        picked(len(numbers) + 1, there, **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"min_free": "lots"}, "--min-free lots is not a size. Try --min-free 20GB"),
        ({"model": "H100"}, "--model H100 matches no GPU. There are: NVIDIA A100-SXM4-80GB"),
        (
            {"min_free": "75GB"},
            r"auto:1 --min-free 75GB can pick no GPU. Not available: GPU 0 \(60.0 GiB free",
        ),
    ],
)
def test_a_bound_that_can_not_be_kept_ends_in_one_line(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ChoiceError, match=says):
        picked(1, machine(gpu(0, 20, 5)), **options)


def test_what_is_more_than_any_gpu_has_is_measured_by_the_largest() -> None:
    with pytest.raises(ChoiceError, match=r"more than any GPU has. The largest has 80.0 GiB\.$"):
        picked(1, machine(gpu(0), kind(gpu(1), "NVIDIA T400", 2)), min_free="1TB")


@pytest.mark.parametrize("text", ["0", "all", "none", "reset"])
def test_bounds_go_with_auto_alone(text: str) -> None:
    with pytest.raises(
        ChoiceError,
        match=r"--min-free 20GB --model A100 goes with auto\. Try auto --min-free 20GB --model A100",
    ):
        select(parse(text), machine(), (None, None), Options(min_free="20GB", model="A100"))


# Machines where anything can be UNKNOWN.
FIGURE = st.integers(0, 79) | st.just(UNKNOWN)


@st.composite
def machines(draw: st.DrawFn) -> Inventory:
    gpus = []
    for index in range(draw(st.integers(1, 5))):
        used, busy = draw(FIGURE), draw(st.integers(0, 100) | st.just(UNKNOWN))
        processes = draw(
            st.just(UNKNOWN) | st.lists(st.just(GpuProcess(1, "x", "maria", UNKNOWN)), max_size=2).map(tuple)
        )
        free = UNKNOWN if used is UNKNOWN else (80 - used) * GIB
        claims = draw(st.sampled_from([(), (), (CLAIM,)]))
        status = GpuStatus(
            UNKNOWN if used is UNKNOWN else used * GIB, free, busy, processes=processes, claims=claims
        )
        gpus.append(gpu(index)._replace(status=status, name=draw(st.sampled_from(["A", "B"]))))
    return machine(*gpus)


@given(machines(), st.integers(1, 5))
def test_auto_keeps_what_it_promises_on_any_machine(there: Inventory, count: int) -> None:
    try:
        devices, why = pick(count, there.devices)
    except ChoiceError as error:
        assert "\n" not in str(error)
        return
    assert len(set(devices)) == count
    assert not any(device.status.claims for device in devices)
    assert "\n" not in why
    left = [one for one in there if one not in devices and not one.status.claims]
    # Never an unreadable one over a readable free one, nor a busy one over a free one.
    if any(not device.is_free for device in devices):
        assert not any(one.is_free for one in left)


def test_a_free_mig_instance_comes_before_a_busy_gpu() -> None:
    whole = split(gpu(1))
    part = whole.mig[0]._replace(status=GpuStatus(0, 40 * GIB, processes=()))
    there = machine(gpu(0, 50, 90), whole._replace(mig=(part,)))
    devices, why = pick(1, there.devices)
    assert devices == (part,)
    assert why.endswith("is free and unclaimed. Not picked: GPU 0 (in use).")
    assert pick(1, machine(gpu(0), whole._replace(mig=(part,))).devices)[0] == (gpu(0),)


PARKED = CLAIM._replace(is_parked=True)


def parked(whole: Gpu, *more: GpuProcess) -> Gpu:
    """Return a GPU on which only CUDA's context of a parked process is left, and more processes."""
    context = GpuProcess(4711, "ipykernel", "maria", GIB // 2)
    used = whole.status.memory_used
    assert isinstance(used, int)
    status = whole.status._replace(claims=(PARKED,), processes=(context, *more), memory_used=used + GIB // 2)
    return whole._replace(status=status)


def test_a_parked_one_comes_after_unclaimed_ones_and_before_those_in_use() -> None:
    busy, unsure = gpu(2, 20, 90), gpu(3)
    unsure = unsure._replace(status=unsure.status._replace(utilization=UNKNOWN))
    there = machine(parked(gpu(0)), gpu(1), busy, unsure, claimed(gpu(4)))
    assert picked(4, there) == [1, 3, 0, 2]
    with pytest.raises(NotFreeError, match=r"GPU 4 \(claimed by maria"):
        picked(5, there)


def test_a_parked_one_is_not_free() -> None:
    there = machine(parked(gpu(0)), parked(gpu(1)))
    with pytest.raises(NotFreeError, match=r"GPU 0 and GPU 1 \(claimed by maria: train.ipynb, .*, parked\)"):
        picked(1, there, only_free=True)
    with pytest.raises(NotFreeError, match="parked"):
        select(parse("0"), there, (None, None), Options(only_free=True))


def test_what_somebody_else_uses_meanwhile_is_in_use() -> None:
    other = GpuProcess(4712, "train.py", "tom", 20 * GIB)
    used, works = parked(gpu(1, 20), other), parked(gpu(2, busy=90))
    hidden = parked(gpu(3, 20))  # the memory of nobody who is listed
    kept = gpu(4, 70)
    pool = GpuProcess(4711, "ipykernel", "maria", 70 * GIB)  # which the parked process cannot move
    kept = kept._replace(status=kept.status._replace(claims=(PARKED,), processes=(pool,)))
    assert picked(4, machine(parked(gpu(0)), used, works, hidden))[0] == 0
    assert [one.status.is_parked for one in (parked(gpu(0)), used, works, hidden, kept)] == [
        True,
        *[False] * 4,
    ]


def test_why_a_parked_one_is_picked_and_why_not() -> None:
    pool = machine(parked(gpu(0)), parked(gpu(1, 1)), gpu(2, 20, 90)).devices
    assert pick(1, pool, Options())[1].startswith(
        "No GPU is free. GPU 0 is parked. Not picked: GPU 1 (claimed by maria: train.ipynb, since "
    )
    assert pick(2, (gpu(4), *pool), Options())[1].startswith("Only 1 GPU is free. GPU 0 is parked.")
    assert pick(2, pool, Options())[1].startswith("No GPU is free. GPU 0 and GPU 1 are parked.")


def test_the_table_shows_that_a_parked_one_is_free_to_use_and_whose_it_was() -> None:
    text = as_text(Snapshot(machine(parked(gpu(0)), parked(gpu(1, 20), GpuProcess(4712, memory=20 * GIB)))))
    lines = [line.rstrip() for line in text.splitlines() if "claimed by maria: train.ipynb, since" in line]
    assert [line.rpartition(", ")[2] for line in lines] == ["parked: free to use", "parked"]
    alone = parked(gpu(0))._replace(compute_mode="Exclusive_Process")  # its context lets nobody else in
    assert "free to use" not in as_text(Snapshot(machine(alone)))
    with pytest.raises(NotFreeError, match="Exclusive_Process"):
        picked(1, machine(alone))
