"""What one who waits leaves to those who came before."""

from __future__ import annotations

import pytest

from gpu_magic.claims.folder import PLACE, Found
from gpu_magic.devices.model import UNKNOWN, Claim, GpuProcess, Inventory, Unknown
from gpu_magic.gpus.wait import Reservations, Wanted
from tests.gpus.machines import GIB, gpu

ALL = tuple(f"GPU-{index}" for index in range(8))
EIGHT = Inventory(tuple(gpu(0)._replace(index=index, uuid=uuid) for index, uuid in enumerate(ALL)))


def uuids(*indices: int) -> tuple[str, ...]:
    return tuple(ALL[index] for index in indices)


def place(
    count: int,
    *wanted: int,
    owner: str = "maria",
    pid: int | Unknown = 11,
    order: int = 1,
    min_free: int = 0,
) -> Found:
    """Return the place of a process that waits for some of these GPUs; without any, of all."""
    text = str(Wanted(count, not min_free, min_free, uuids(*wanted) or ALL))
    return Found(PLACE, Claim(owner, 0.0, pid, "a.ipynb"), (order, ""), text)


def busy(*indices: int, pid: int = 99, owner: str | Unknown = "tom") -> Inventory:
    """Return a machine on which a process uses some GPUs."""
    process = GpuProcess(pid, "train.py", owner, GIB)
    gpus = list(EIGHT)
    for index in indices:
        gpus[index] = gpus[index]._replace(status=gpus[index].status._replace(processes=(process,)))
    return Inventory(tuple(gpus))


def claimed(*indices: int, pid: int | Unknown = 99) -> Inventory:
    return EIGHT.with_claims({uuid: (Claim("tom", 0.0, pid),) for uuid in uuids(*indices)})


def left(found: Inventory) -> list[int]:
    """Return the GPUs that are left to others."""
    return [one.index for one in found if any(claim.waits for claim in one.status.claims)]


def leave(ahead: list[Found], machine: Inventory, *mine: int) -> list[int]:
    return left(Reservations().reserve(ahead, machine, uuids(*mine) or ALL, 0.0))


def test_each_is_left_as_many_as_it_waits_for() -> None:
    ahead = [place(1), place(2, owner="tom", order=2)]
    assert len(leave(ahead, EIGHT)) == 3
    assert len(leave(ahead, busy(*range(3, 8)))) == 3


def test_who_can_not_be_met_now_is_left_nothing() -> None:
    assert leave([place(8)], busy(7)) == []
    assert leave([place(2, 3, 4)], claimed(4), 3) == []
    ahead = [place(2), place(2, owner="tom", order=2), place(1, owner="eve", order=3)]
    assert leave(ahead, busy(*range(3, 8))) == [0, 1, 2]  # tom is left nothing, and eve is left the third


def test_who_waits_for_another_gpu_holds_nobody_up() -> None:
    assert leave([place(1, 1)], EIGHT, 3) == []
    assert leave([place(1, 3)], EIGHT, 3) == [3]


def test_what_the_fewest_wait_for_is_left_first() -> None:
    assert leave([place(1, 3, 4)], EIGHT, 3) == []
    assert leave([place(1, 3, 4), place(1, 4, order=2)], busy(4), 3) == [3]


def test_what_others_have_claimed_or_use_is_left_to_nobody() -> None:
    assert leave([place(6)], claimed(0, 1)) == [2, 3, 4, 5, 6, 7]
    assert leave([place(7, pid=UNKNOWN)], claimed(0, pid=UNKNOWN)) == [1, 2, 3, 4, 5, 6, 7]
    unknown = EIGHT[0]._replace(status=EIGHT[0].status._replace(processes=UNKNOWN, utilization=UNKNOWN))
    assert leave([place(7)], Inventory((unknown, *EIGHT.gpus[1:]))) == [1, 2, 3, 4, 5, 6, 7]


def test_what_is_parked_is_left_to_waits_for_memory_and_not_to_those_for_free_gpus() -> None:
    parked = Claim("tom", 0.0, 99, is_parked=True)
    machine = EIGHT.with_claims(dict.fromkeys(uuids(3), (parked,)))
    assert leave([place(1, 3, min_free=GIB)], machine) == [3]
    assert leave([place(1, 3)], machine) == []


def test_what_it_has_itself_is_its_first() -> None:
    assert leave([place(2, 3, 4, 5, pid=99)], claimed(5), 3, 4) == [3]
    assert leave([place(2, 3, 4, pid=99)], busy(4), 3) == [3]
    assert leave([place(1, 3, 4, pid=99)], busy(4), 3) == []
    # In a container, the driver's number 99 is not that of the process that waits.
    assert leave([place(1, 3, 4, pid=99)], busy(4, owner=UNKNOWN), 3) == [3]


def test_a_bound_of_memory_is_kept() -> None:
    full = EIGHT[0]._replace(status=EIGHT[0].status._replace(memory_free=10 * GIB))
    machine = Inventory((full, *EIGHT.gpus[1:]))
    assert leave([place(1, 0, 1, min_free=40 * GIB)], machine, 0, 1) == [1]
    assert leave([place(1, 0, 1, min_free=40 * GIB)], machine, 0) == []


def test_it_is_said_to_whom_it_is_left() -> None:
    found = Reservations().reserve([place(7)], claimed(1), ALL, 0.0)
    assert str(found[0].status.claims[0]).startswith("kept for maria: a.ipynb, waiting since ")
    assert str(found[1].status.claims[0]).startswith("claimed by tom, since ")


def looks(*ahead_of: list[Found], machine: Inventory = EIGHT, every: float = 10.0) -> list[int]:
    """Return how many are left to others, look by look."""
    turns = Reservations()
    return [
        len(left(turns.reserve(ahead, machine, ALL, 1 + at * every))) for at, ahead in enumerate(ahead_of)
    ]


def test_who_does_not_take_them_is_passed_over() -> None:
    assert looks(*[[place(2)]] * 4) == [2, 2, 0, 0]


def test_a_user_has_no_more_time_with_many_places() -> None:
    many = [
        [place(1, order=order) for order in range(first, 100)] for first in range(6)
    ]  # one leaves each time
    assert looks(*[[*places, place(1, owner="tom", order=200)] for places in many]) == [8, 8, 1, 1, 0, 0]


def test_who_was_passed_over_gets_the_next_time_once_its_gpu_is_used() -> None:
    turns, machines = Reservations(), [EIGHT] * 3 + [busy(0)] + [EIGHT] * 3
    seen = [left(turns.reserve([place(1, 0)], there, ALL, at * 10.0)) for at, there in enumerate(machines)]
    assert seen == [[0], [0], [], [], [0], [0], []]


def test_each_gpu_that_comes_free_is_left_as_long() -> None:
    """Those who came before take one after another."""
    turns, each = Reservations(), [place(1, order=order) for order in range(8)]
    for taken in range(7):
        there = busy(*range(taken), *range(taken + 1, 8))
        assert left(turns.reserve(each[taken:], there, ALL, taken * 10.0)) == [taken]


def test_what_it_has_itself_costs_it_no_time() -> None:
    turns, its, others = Reservations(), Claim("maria", 0.0, 11), Claim("tom", 0.0, 99)

    def left_while(taken: int, now: float) -> list[int]:
        there = EIGHT.with_claims({ALL[5]: (its,), ALL[taken]: (others,)})
        return left(turns.reserve([place(2, 3, 4, 5)], there, uuids(3, 4), now))

    assert [left_while(4, now) for now in (0.0, 20.0)] == [[3], []]
    assert left_while(3, 30.0) == [4]


def test_who_could_have_them_again_and_again_wins_no_time() -> None:
    """Its owner can make that so, by claims."""
    turns = Reservations()
    machines = [busy(*[7, 6][: 1 + look % 2]) for look in range(6)]
    seen = [len(left(turns.reserve([place(7)], there, ALL, at * 10.0))) for at, there in enumerate(machines)]
    assert seen == [7, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 1",
        f"x 1 0 {ALL[0]}",
        f"0 1 0 {ALL[0]}",
        f"-1 1 0 {ALL[0]}",
        f"2 1 0 {ALL[0]} {ALL[0]}",
        f"{'9' * 5000} 1 0 {ALL[0]}",
        "1 1 0 GPU-nothing",
        f"1 1 {10**30} {ALL[0]}",
    ],
)
def test_what_nobody_can_wait_for_is_no_place(text: str) -> None:
    assert leave([place(1)._replace(rest=text)], EIGHT) == []


def test_it_reads_what_it_writes() -> None:
    wanted = Wanted(2, only_free=True, min_free=5, uuids=ALL)
    assert Wanted.parse(str(wanted)) == wanted


def test_without_others_the_machine_is_as_it_was() -> None:
    assert Reservations().reserve([], EIGHT, ALL, 0.0) == EIGHT
