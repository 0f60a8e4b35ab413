"""Engines on two hosts: sets with machines of their own, at addresses of their own."""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from gpu_magic import ClusterError
from tests.cluster.hosts import on_host, started
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gpu_magic import Cluster
    from gpu_magic.testing import Machine

A, B = "127.0.0.1", "127.0.0.2"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return the client of two engines on a machine that is theirs, and of one that has a part of another."""
    with started(
        tmp_path_factory.mktemp("hosts"),
        on_host(A, "4xA100-80GB"),
        on_host(A, "4xA100-80GB"),
        on_host(B, "4xRTX-4090", CUDA_VISIBLE_DEVICES="3,1"),
    ) as client:
        yield client


@pytest.fixture
def cluster(client: Any, join: Callable[[Any], Cluster]) -> Cluster:
    """Return these engines with their GPUs."""
    return join(client)


def variable(client: Any, name: str) -> list[str]:
    """Return a variable of each engine's environment."""
    found: list[str] = client[:].apply_sync(os.getenv, name)
    return found


def test_engines_of_one_host_divide_its_gpus_and_a_mask_is_kept_within(client: Any, cluster: Cluster) -> None:
    assert str(cluster) == (
        "3 engines: 0 = GPU 0 and GPU 1 (SIMULATED NVIDIA A100-SXM4-80GB) on 127.0.0.1, "
        "1 = GPU 2 and GPU 3 (SIMULATED NVIDIA A100-SXM4-80GB) on 127.0.0.1, "
        "2 = GPU 3 and GPU 1 (SIMULATED NVIDIA GeForce RTX 4090) on 127.0.0.2"
    )
    assert variable(client, "CUDA_VISIBLE_DEVICES") == ["0,1", "2,3", "3,1"]
    assert set(variable(client, "CUDA_DEVICE_ORDER")) == {"PCI_BUS_ID"}


def test_ranks_span_hosts(client: Any, cluster: Cluster) -> None:
    del cluster
    assert variable(client, "RANK") == ["0", "1", "2"]
    assert variable(client, "WORLD_SIZE") == ["3"] * 3
    assert variable(client, "LOCAL_RANK") == ["0"] * 3
    assert variable(client, "MASTER_ADDR") == [A] * 3
    assert len(set(variable(client, "MASTER_PORT"))) == 1
    told = [json.loads(text) for text in variable(client, "TF_CONFIG")]
    assert [one["task"] for one in told] == [{"type": "worker", "index": rank} for rank in range(3)]
    assert len({json.dumps(one["cluster"]) for one in told}) == 1
    assert [worker.partition(":")[0] for worker in told[0]["cluster"]["worker"]] == [A, A, B]


def reduce() -> float:
    """Sum the ranks, by PyTorch's own collective."""
    import torch
    import torch.distributed

    torch.distributed.init_process_group("gloo")
    value = torch.tensor([float(torch.distributed.get_rank() + 1)])
    torch.distributed.all_reduce(value)
    torch.distributed.destroy_process_group()
    return float(value)


@pytest.mark.nightly
def test_a_collective_spans_hosts(client: Any, cluster: Cluster) -> None:
    del cluster
    client[:].use_cloudpickle()
    assert client[:].apply_sync(reduce) == [6.0, 6.0, 6.0]


def test_a_kernel_that_was_started_anew_finds_the_engines_as_they_are(
    client: Any, join: Callable[[Any], Cluster]
) -> None:
    first = join(client)
    first.stop()
    assert str(join(client)) == str(first)
    assert client.ids == [0, 1, 2]  # the client stays open


def test_engines_of_somebody_else_can_not_be_restarted(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match=r"^Only the program that started the engines can restart them$"):
        cluster.restart([1])
    assert not cluster.ended


@contextmanager
def busy(client: Any, number: int, folder: Path) -> Iterator[None]:
    """Keep an engine busy."""
    code = "import os, time\nopen({0!r}, 'w').close()\nwhile os.path.exists({0!r}): time.sleep(0.05)"
    flag = folder / "busy"
    reply = client[number].execute(code.format(str(flag)), block=False)
    until(flag.exists)
    try:
        yield
    finally:
        flag.unlink()
        reply.get()
        until(lambda: not client.queue_status(number)["queue"])  # the controller learns of it later


def test_each_engine_is_shown_with_its_host(client: Any, cluster: Cluster, tmp_path: Path) -> None:
    with busy(client, 1, tmp_path):
        lines = [re.split(r" {2,}", line.strip()) for line in repr(cluster.status()).splitlines()]
    assert lines[0] == ["Engine", "GPU", "Memory", "State"]
    assert [line[-1].partition(" ")[0] for line in lines[1:]] == ["idle", "busy", "idle"]
    # Only this machine's memory is read.
    gpus = f"GPU 3 and GPU 1 (SIMULATED NVIDIA GeForce RTX 4090) on {B}"
    assert lines[3][:3] == ["2", gpus, "? / 48.0 GiB"]


def test_a_client_with_a_busy_engine_is_refused_in_a_line(
    client: Any, join: Callable[[Any], Cluster], tmp_path: Path
) -> None:
    with (
        busy(client, 1, tmp_path),
        pytest.raises(ClusterError, match=r"^Engine 1 is busy\. Try again when all are idle\.$"),
    ):
        join(client)


def test_a_call_that_is_about_to_end_is_waited_for(client: Any, join: Callable[[Any], Cluster]) -> None:
    """The controller learns that a call has ended after the client does."""
    client[1].apply_async(time.sleep, 0.2)
    assert not join(client).ended


simulation: AbstractContextManager[Machine]  # of an engine, from the first of these calls to the second


def start_cuda_with_all() -> None:
    """Start CUDA in an engine, on all GPUs that it was given."""
    from gpu_magic.testing import simulate, start_cuda

    global simulation  # noqa: PLW0603 - it lasts until end_cuda
    simulation = simulate("4xA100-80GB")
    simulation.__enter__()
    start_cuda()


def end_cuda() -> None:
    simulation.__exit__(None, None, None)


def test_where_cuda_has_been_initialized_the_engine_is_named_and_nothing_is_changed(
    client: Any, join: Callable[[Any], Cluster]
) -> None:
    join(client).stop()
    before = variable(client, "TF_CONFIG")
    client[1].apply_sync(start_cuda_with_all)
    try:
        with pytest.raises(ClusterError) as caught:
            join(client)
    finally:
        client[1].apply_sync(end_cuda)
    assert str(caught.value) == (
        "Engine 1 on 127.0.0.1 cannot use GPU 2 and GPU 3: CUDA has started there and keeps GPU 0 "
        "(cuda:0), GPU 1 (cuda:1), GPU 2 (cuda:2), GPU 3 (cuda:3). Restart it, and give it its GPU "
        "before anything starts CUDA there."
    )
    assert variable(client, "TF_CONFIG") == before
