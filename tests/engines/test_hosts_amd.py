"""Engines on hosts with AMD's GPUs, with NVIDIA's, and with both."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import gpu_magic
from gpu_magic import ClusterError
from gpu_magic.engines.with_gpus import engines_with
from gpu_magic.process.session import current
from tests.engines.hosts import on_host, started
from tests.engines.test_hosts import columns, variable
from tests.machine import AMD_CARDS, CARDS, Driver, amd_environment, environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gpu_magic import Cluster

A, B, C, D = (f"127.0.0.{number}" for number in range(1, 5))


def amd_host(
    address: str, native_amd: Path, folder: Path, nvidia: dict[str, str] | None = None, **variables: str
) -> dict[str, str]:
    """Return the variables of an engine on a host with AMD's GPUs."""
    state = folder / f"amd-{address}"
    own = tuple(replace(card, uuid=f"{card.uuid[:-1]}{address[-1]}") for card in AMD_CARDS)
    Driver(own, version="6.12.12").write(state)
    return {"GPU_MAGIC_ADDRESS": address} | amd_environment(native_amd, state, nvidia) | variables


@pytest.fixture(scope="module")
def client(native: Path, native_amd: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return the client of engines on hosts of each kind; the last two share one with GPUs of both."""
    folder = tmp_path_factory.mktemp("hosts")
    Driver(CARDS[:2]).write(folder / "nvidia")
    nvidia = environment(native, folder / "nvidia")
    with started(
        folder,
        amd_host(A, native_amd, folder),
        amd_host(A, native_amd, folder),
        amd_host(B, native_amd, folder, HIP_VISIBLE_DEVICES="3,1"),
        on_host(C, "2xL4"),
        amd_host(D, native_amd, folder, nvidia),
        amd_host(D, native_amd, folder, nvidia, CUDA_VISIBLE_DEVICES="", HIP_VISIBLE_DEVICES="0,1,2,3"),
    ) as client:
        yield client


@pytest.fixture
def cluster(client: Any, join: Callable[[Any], Cluster]) -> Cluster:
    """Return these engines with their GPUs."""
    return join(client)


def test_engines_divide_amds_gpus_and_have_those_of_one_vendor(cluster: Cluster) -> None:
    kind = "(AMD Instinct MI300X)"
    assert [str(engine) for engine in cluster.engines.values()] == [
        f"0 = GPU 0 and GPU 1 {kind} on {A}",
        f"1 = GPU 2 and GPU 3 {kind} on {A}",
        f"2 = GPU 3 and GPU 0 {kind} on {B}",
        f"3 = GPU 0 and GPU 1 (SIMULATED NVIDIA L4) on {C}",
        f"4 = GPU 0 and GPU 1 (NVIDIA A100-SXM4-80GB) on {D}",
        f"5 = AMD GPU 0, AMD GPU 1, AMD GPU 2 and AMD GPU 3 {kind} on {D}",
    ]


def test_each_engine_gets_the_variable_of_its_vendor(client: Any, cluster: Cluster) -> None:
    """HIP counts the first two of AMD's the other way round."""
    del cluster
    assert variable(client, "HIP_VISIBLE_DEVICES") == ["1,0", "2,3", "3,1", None, "-1", "1,0,2,3"]
    assert variable(client, "CUDA_VISIBLE_DEVICES") == [None, None, None, "0,1", "0,1", ""]


def test_the_table_of_all_hosts_shows_them_as_amds(cluster: Cluster) -> None:
    hosts = gpu_magic.gpus(cluster=cluster)
    assert {host: machine.vendors for host, machine in hosts.items()} == {
        A: ("amd",),
        B: ("amd",),
        C: ("nvidia",),
        D: ("nvidia", "amd"),
    }
    assert [hosts[host].kernel.vendor for host in (A, C)] == ["amd", "nvidia"]
    table = columns(repr(hosts))
    there = [(line[0], line[1], line[-2]) for line in table[1:] if len(line) > 1]
    kind = "AMD Instinct MI300X"
    assert there[:4] == [
        ("0", kind, "cuda:0 of engine 0"),
        ("1", kind, "cuda:1 of engine 0"),
        ("2", kind, "cuda:0 of engine 1"),
        ("3", kind, "cuda:1 of engine 1"),
    ]
    assert [(number, where) for number, name, where in there[-4:] if name == kind] == [
        (f"amd:{index}", f"cuda:{index} of engine 5") for index in range(4)
    ]
    assert "driver 6.12.12" in repr(hosts)


@pytest.mark.parametrize(
    ("typed", "numbers"),
    [
        ("amd:0", [0, 2, 5]),
        ("0", [0, 2, 3, 4]),
        ("amd:all", [0, 1, 2, 5]),
        ("all", [0, 1, 2, 3, 4, 5]),
        ("GPU-2c0f", [1, 5]),
    ],
)
def test_engines_are_named_by_their_gpus(cluster: Cluster, typed: str, numbers: list[int]) -> None:
    assert [engine.number for engine in engines_with(cluster, current(), typed)] == numbers


def start_hip() -> None:
    """Start ROCm in an engine, on all GPUs that it was given."""
    import ctypes

    ctypes.CDLL("libhsa-runtime64.so.1").hsa_init()


def test_where_rocm_has_been_initialized_the_engine_is_named_and_nothing_is_changed(
    native_amd: Path, tmp_path: Path, join: Callable[[Any], Cluster]
) -> None:
    there = amd_host(A, native_amd, tmp_path)
    with started(tmp_path, there, there) as client:
        client[:].apply_sync(current_reader)  # it watches from here on
        client[1].apply_sync(start_hip)
        with pytest.raises(ClusterError) as caught:
            join(client)
        assert variable(client, "HIP_VISIBLE_DEVICES") == [None, None]
    said = str(caught.value)
    assert said.startswith("Engine 1 on 127.0.0.1 can't be given GPU 2 and GPU 3: ROCm was initialized there")
    assert said.endswith("and let it have its GPU before anything starts ROCm there.")


def current_reader() -> None:
    """Have gpu_magic look at the machine."""
    gpu_magic.gpus()


def test_engines_whose_gpus_overlap_are_told_amds_variable(
    native_amd: Path, tmp_path: Path, join: Callable[[Any], Cluster]
) -> None:
    one, other = (amd_host(A, native_amd, tmp_path, HIP_VISIBLE_DEVICES=value) for value in ("2,3", "0,2"))
    with started(tmp_path, one, other) as client, pytest.raises(ClusterError) as caught:
        join(client)
    assert str(caught.value).endswith(
        "which overlap: give all engines of a host the same HIP_VISIBLE_DEVICES, or each its own GPUs."
    )
