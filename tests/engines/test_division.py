"""How the GPUs of hosts are divided among engines."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_magic.devices.model import Gpu, MigInstance
from gpu_magic.engines.division import Allotted, divide
from gpu_magic.errors import ClusterError

if TYPE_CHECKING:
    from random import Random

    from gpu_magic.devices.model import Device


def gpus(host: str, *indices: int) -> tuple[Device, ...]:
    return tuple(Gpu(index, uuid=f"GPU-{host}-{index}") for index in indices)


@st.composite
def machines(draw: st.DrawFn) -> list[Allotted]:
    """Draw engines on hosts: on each one group or several that have different GPUs, enough for all."""
    places = []
    for host in draw(st.lists(st.sampled_from("abc"), min_size=1, unique=True)):
        first = 0
        for size in draw(st.lists(st.integers(1, 8), min_size=1, max_size=3)):
            allotment = gpus(host, *draw(st.permutations(range(first, first + size))))
            places += [(host, allotment)] * draw(st.integers(1, size))
            first += size
    return [Allotted(number, *place) for number, place in enumerate(draw(st.permutations(places)))]


def uuids(devices: tuple[Device, ...]) -> list[str]:
    return [str(device.uuid) for device in devices]


@given(machines())
def test_no_gpu_is_given_twice_and_each_engine_has_one(engines: list[Allotted]) -> None:
    shares = divide(engines)
    assert list(shares) == [engine.number for engine in engines]
    assert all(shares.values())
    everything = list(chain.from_iterable(map(uuids, shares.values())))
    assert len(set(everything)) == len(everything)


@given(machines())
def test_an_engine_gets_nothing_outside_what_it_was_given(engines: list[Allotted]) -> None:
    shares = divide(engines)
    assert all(engine.uuids.issuperset(uuids(shares[engine.number])) for engine in engines)


@given(machines())
def test_all_gpus_are_used(engines: list[Allotted]) -> None:
    used = set(chain.from_iterable(map(uuids, divide(engines).values())))
    assert used == set().union(*(engine.uuids for engine in engines))


@given(machines())
def test_shares_are_contiguous_in_the_order_of_engines_and_differ_by_one_at_most(
    engines: list[Allotted],
) -> None:
    shares = divide(engines)
    for group in {engine.uuids for engine in engines}:
        there = [engine for engine in engines if engine.uuids == group]
        joined = list(chain.from_iterable(shares[engine.number] for engine in there))
        assert joined == list(there[0].devices)
        sizes = [len(shares[engine.number]) for engine in there]
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)


@given(machines(), st.randoms(use_true_random=False))
def test_the_order_in_which_engines_are_named_does_not_matter(
    engines: list[Allotted], random: Random
) -> None:
    shuffled = engines.copy()
    random.shuffle(shuffled)
    assert divide(shuffled) == divide(engines)


def test_of_mig_instances_each_engine_gets_one() -> None:
    instances = tuple(MigInstance(f"MIG-{number}", "3g.40gb", 0, number) for number in range(3))
    shares = divide([Allotted(0, "a", instances), Allotted(1, "a", instances)])
    assert shares == {0: instances[:1], 1: instances[1:2]}


@pytest.mark.parametrize(
    ("engines", "says"),
    [
        (
            [Allotted(0, "a", gpus("a", 0, 1)), Allotted(1, "a", gpus("a", 1, 2))],
            "On a engine 0 was given GPU 0 and GPU 1 and engine 1 was given GPU 1 and GPU 2, which overlap: "
            "give all engines of a host the same CUDA_VISIBLE_DEVICES, or each its own GPUs.",
        ),
        (
            [Allotted(number, "a", gpus("a", 0, 3)) for number in (2, 5, 7)],
            "On a engines 2, 5 and 7 have 2 GPUs (GPU 0 and GPU 3): one engine needs one at least.",
        ),
        (
            [Allotted(0, "a", gpus("a", 0)), Allotted(1, "b", ())],
            "On b engine 1 has no GPU that can be used: start engines where GPUs are.",
        ),
    ],
)
def test_what_can_not_be_divided_is_one_line(engines: list[Allotted], says: str) -> None:
    with pytest.raises(ClusterError) as caught:
        divide(engines)
    assert str(caught.value) == says
