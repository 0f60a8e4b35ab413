"""How the GPUs of hosts are divided among engines."""

from __future__ import annotations

import socket
from itertools import chain
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_magic
from gpu_magic.cluster.cluster import Engine
from gpu_magic.cluster.join import divide, report_gpus
from gpu_magic.devices.model import Gpu
from gpu_magic.errors import ClusterError

if TYPE_CHECKING:
    from random import Random

    from gpu_magic.devices.model import Device


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("typed", "host"),
    [("127.0.0.9", "127.0.0.9"), (" 127.0.0.9\n", "127.0.0.9"), (" ", socket.gethostname())],
)
def test_an_engine_has_the_address_that_its_host_names(
    monkeypatch: pytest.MonkeyPatch, typed: str, host: str
) -> None:
    monkeypatch.setenv("GPU_MAGIC_ADDRESS", typed)
    assert report_gpus(0, gpu_magic.__version__).host == host


def gpus(host: str, *indices: int) -> tuple[Device, ...]:
    return tuple(Gpu(index, uuid=f"GPU-{host}-{index}") for index in indices)


@st.composite
def machines(draw: st.DrawFn) -> list[Engine]:
    """Draw engines on hosts: on each one group or several that have different GPUs, enough for all."""
    places = []
    for host in draw(st.lists(st.sampled_from("abc"), min_size=1, unique=True)):
        first = 0
        for size in draw(st.lists(st.integers(1, 8), min_size=1, max_size=3)):
            allotment = gpus(host, *draw(st.permutations(range(first, first + size))))
            places += [(allotment, host)] * draw(st.integers(1, size))
            first += size
    return [Engine(number, *place) for number, place in enumerate(draw(st.permutations(places)))]


def uuids(devices: tuple[Device, ...]) -> list[str]:
    return [str(device.uuid) for device in devices]


@given(machines())
def test_each_gpu_is_given_to_one_engine_that_was_given_it(engines: list[Engine]) -> None:
    shares = {engine.number: engine.devices for engine in divide(engines)}
    assert list(shares) == [engine.number for engine in engines]
    assert all(shares.values())
    assert all(set(uuids(engine.devices)).issuperset(uuids(shares[engine.number])) for engine in engines)
    used = list(chain.from_iterable(map(uuids, shares.values())))
    assert sorted(used) == sorted(set().union(*(uuids(engine.devices) for engine in engines)))


@given(machines())
def test_shares_are_contiguous_in_the_order_of_engines_and_differ_by_one_at_most(
    engines: list[Engine],
) -> None:
    shares = {engine.number: engine.devices for engine in divide(engines)}
    for group in {frozenset(uuids(engine.devices)) for engine in engines}:
        there = [engine for engine in engines if set(uuids(engine.devices)) == group]
        joined = list(chain.from_iterable(shares[engine.number] for engine in there))
        assert joined == list(there[0].devices)
        sizes = [len(shares[engine.number]) for engine in there]
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)


@given(machines(), st.randoms(use_true_random=False))
def test_the_order_in_which_engines_are_named_does_not_matter(engines: list[Engine], random: Random) -> None:
    shuffled = engines.copy()
    random.shuffle(shuffled)
    assert divide(shuffled) == divide(engines)


@pytest.mark.parametrize(
    ("engines", "says"),
    [
        (
            [Engine(0, gpus("a", 0, 1), "a"), Engine(1, gpus("a", 1, 2), "a")],
            "The GPUs of the engines on a overlap. Give all engines the same CUDA_VISIBLE_DEVICES, or each engine "
            "its own GPUs.",
        ),
        (
            [Engine(number, gpus("a", 0, 3), "a") for number in (2, 5, 7)],
            "a has 3 engines and only 2 GPUs. Each engine needs one.",
        ),
        (
            [Engine(0, gpus("a", 0), "a"), Engine(1, (), "b")],
            "b has 1 engine and only 0 GPUs. Each engine needs one.",
        ),
    ],
)
def test_what_can_not_be_divided_is_one_line(engines: list[Engine], says: str) -> None:
    with pytest.raises(ClusterError) as caught:
        divide(engines)
    assert str(caught.value) == says
