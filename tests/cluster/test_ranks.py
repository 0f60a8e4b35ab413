"""Frameworks start across engines as their guides say, without a word on ranks: what they are told is there."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpu_magic.launch.process import free_ports
from tests.conftest import LIMIT

if TYPE_CHECKING:
    import gpu_magic

# torch.distributed, "Initialization" and "Collective functions".
TORCH = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
tensor = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(tensor)
"""
# jax.distributed.initialize, "On Cloud TPU, Slurm, and Open MPI environments": no arguments.
JAX = """
import jax
jax.distributed.initialize()
from jax.experimental import multihost_utils
gathered = multihost_utils.process_allgather(jax.numpy.array([jax.process_index()]))
"""
# TensorFlow, "Custom training loop with Keras and MultiWorkerMirroredStrategy".
TENSORFLOW = """
import json, os
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]

@tf.function
def step():
    per_replica = strategy.run(lambda: tf.constant(float(rank + 1)))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica, axis=None)

reduced = step()
"""


def found_after(cluster: gpu_magic.Cluster, cell: str, expression: str) -> list[Any]:
    """Run a cell in both engines, and return the value of an expression in each."""
    view = cluster.client[:]
    view.execute(cell, block=False).get(LIMIT)
    view.execute(f"found = {expression}", block=False).get(LIMIT)
    values: list[Any] = view.pull("found", block=False).get(LIMIT)
    return values


def test_ports_for_ranks_are_none_that_the_kernel_gives_to_other_sockets() -> None:
    """The engines' own controller had taken rank 0's before it listened there: the other ranks waited 30 minutes."""
    text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    first, last = map(int, text.split())
    if last - first > 60000:
        pytest.skip("this machine gives out all of its ports")
    state = random.getstate()
    found = free_ports(100)
    assert len(set(found)) == 100
    assert [port for port in found if first <= port <= last] == []
    assert random.getstate() == state, "the user's seed"


@pytest.mark.nightly
def test_pytorch_reduces_across_engines(cluster: gpu_magic.Cluster) -> None:
    found = found_after(cluster, TORCH, "(dist.get_rank(), dist.get_world_size(), tensor.item())")
    assert found == [(0, 2, 3.0), (1, 2, 3.0)]


@pytest.mark.nightly
def test_jax_gathers_across_engines(cluster: gpu_magic.Cluster) -> None:
    found = found_after(cluster, JAX, "(jax.process_index(), jax.process_count(), gathered.ravel().tolist())")
    assert found == [(0, 2, [0, 1]), (1, 2, [0, 1])]


@pytest.mark.nightly
def test_tensorflow_reduces_across_engines(cluster: gpu_magic.Cluster) -> None:
    found = found_after(cluster, TENSORFLOW, "(rank, strategy.num_replicas_in_sync, float(reduced))")
    assert found == [(0, 2, 3.0), (1, 2, 3.0)]


@pytest.mark.nightly
def test_a_training_loop_of_ddp_goes_on_from_cell_to_cell(cluster: gpu_magic.Cluster) -> None:
    """Each engine has data of its own; gradients are averaged, so that the models stay the same."""
    begin = """
from torch.nn.parallel import DistributedDataParallel
if not dist.is_initialized():
    dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
data, losses = torch.randn(64, 2), []
wanted = data @ torch.tensor([[2.0], [-1.0]])
"""
    step = """
for _ in range(20):
    loss = torch.nn.functional.mse_loss(model(data), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""
    found_after(cluster, "import torch\nimport torch.distributed as dist", "0")
    found_after(cluster, begin, "0")
    weights = "[value.item() for value in model.module.weight.flatten()]"
    first = found_after(cluster, step, f"(losses, {weights})")
    second = found_after(cluster, step, f"(losses, {weights})")
    (here, here_weights), (there, there_weights) = second
    assert here_weights == there_weights
    assert here != there
    assert len(here) == 2 * len(first[0][0])
    assert here[-1] < first[0][0][-1] < first[0][0][0]
