"""Engines on hosts with AMD's GPUs, with NVIDIA's, and with both."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.hosts import on_host, started
from tests.cluster.test_hosts import variable
from tests.machine import AMD_CARDS, CARDS, Driver, amd_environment, environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gpu_magic import Cluster

pytestmark = pytest.mark.nightly  # what is decided is in test_division.py

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
        amd_host(D, native_amd, folder, nvidia, GPU_MAGIC_VENDOR="amd"),
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
        f"5 = GPU 0, GPU 1, GPU 2 and GPU 3 {kind} on {D}",
    ]


def test_each_engine_gets_the_variable_of_its_vendor(client: Any, cluster: Cluster) -> None:
    """HIP counts the first two of AMD's the other way round."""
    del cluster
    assert variable(client, "HIP_VISIBLE_DEVICES") == ["1,0", "2,3", "3,1", None, "-1", "1,0,2,3"]
    assert variable(client, "CUDA_VISIBLE_DEVICES") == [None, None, None, "0,1", "0,1", ""]
