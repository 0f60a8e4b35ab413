"""Clusters of engines: this process's own on a simulated machine, and somebody else's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import gpu_magic
from gpu_magic.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="module")
def cluster() -> Iterator[gpu_magic.Cluster]:
    """Return two engines, on GPU 2 and on GPU 0."""
    with simulate("4xA100-80GB"):
        made = gpu_magic.cluster("2,0")
        yield made
        made.stop()


@pytest.fixture
def join() -> Iterator[Callable[[Any], gpu_magic.Cluster]]:
    """Return a way to use a client's engines; they are let go of with the test."""
    made: list[gpu_magic.Cluster] = []

    def use(client: Any) -> gpu_magic.Cluster:
        made.append(gpu_magic.cluster(client))
        return made[-1]

    yield use
    for cluster in made:
        cluster.stop()
