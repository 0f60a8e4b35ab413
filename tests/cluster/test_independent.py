"""Calls of `gpu_magic.map` are no ranks: neither the engines' variables nor what cells have set up joins them."""

from __future__ import annotations

import os
import pickle
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import cloudpickle
import pytest

import gpu_magic
from gpu_magic.cluster import calls
from tests.conftest import LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable

# What Accelerate's users write at the begin of a script ("Add Accelerate to your code").
ACCELERATE = "from accelerate import Accelerator\naccelerator = Accelerator(cpu=True)"
IN_CELLS = (
    "(accelerator.num_processes, reduced.item(), torch.distributed.is_initialized(), os.environ['RANK'])"
)


def training() -> Callable[[tuple[float, bool]], float]:
    """Return a function that trains, with Accelerate or without: no engine can import it."""

    def train(item: tuple[float, bool]) -> float:
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        rate, accelerates = item
        torch.manual_seed(0)
        model, data = torch.nn.Linear(4, 1), torch.randn(64, 4)
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=rate)
        batches: Any = DataLoader(TensorDataset(data, data.sum(1, keepdim=True)), batch_size=8)
        if accelerates:
            from accelerate import Accelerator

            accelerator = Accelerator(cpu=True)
            model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
        for inputs, wanted in batches:
            loss = torch.nn.functional.mse_loss(model(inputs), wanted)
            optimizer.zero_grad()
            (accelerator.backward if accelerates else torch.Tensor.backward)(loss)
            optimizer.step()
        return float(loss.detach())

    return train


@pytest.fixture(scope="module")
def alone() -> list[float]:
    """Return what two trainings give by themselves."""
    return [training()((rate, False)) for rate in (0.01, 0.02)]


def in_cells(cluster: gpu_magic.Cluster, cell: str, expression: str) -> list[Any]:
    """Run a cell in both engines, as `%%px` does, and return the value of an expression in each."""
    view = cluster.client[:]
    view.execute(f"import os\n{cell}\nfound = {expression}", block=False).get(LIMIT)
    found: list[Any] = view.pull("found", block=False).get(LIMIT)
    return found


@pytest.mark.nightly  # Accelerate in two engines; test_map.py has what calls are told
def test_calls_are_no_ranks_after_cells_that_were(cluster: gpu_magic.Cluster, alone: list[float]) -> None:
    in_cells(cluster, f"{ACCELERATE}\nimport torch", "None")
    assert gpu_magic.map(training(), [(0.01, True), (0.02, True)]) == pytest.approx(alone)
    assert gpu_magic.map(training(), [(0.02, True)]) == pytest.approx(alone[1:]), "one item on two engines"

    def is_rank(item: int) -> tuple[bool, list[str]]:
        import torch

        names = [
            name
            for name in os.environ
            if "RANK" in name or name in ("MASTER_ADDR", "MASTER_PORT", "TF_CONFIG")
        ]
        found = (
            torch.distributed.is_initialized(),
            [*names, *(name for name in os.environ if "COORDINATOR" in name)],
        )
        if item < 0:
            raise ValueError(found)
        return found

    assert gpu_magic.map(is_rank, [1, 2]) == [(False, []), (False, [])]
    with pytest.raises(gpu_magic.CallFailed, match=r"ValueError: \(False, \[\]\)"):
        gpu_magic.map(is_rank, [-1])
    found = in_cells(cluster, "reduced = accelerator.reduce(torch.ones(1))", IN_CELLS)
    assert found == [(2, 2.0, True, "0"), (2, 2.0, True, "1")]


def test_calls_run_beside_an_accelerate_that_keeps_its_state_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = ModuleType("accelerate.state")
    for name in "PartialState", "AcceleratorState", "GradientState":
        setattr(other, name, type(name, (), {}))
    monkeypatch.setitem(sys.modules, "accelerate.state", other)
    monkeypatch.setenv("RANK", "1")
    assert calls.keep("a token", cloudpickle.dumps(os.getenv), {}) is None
    answer = calls.call("a token", pickle.dumps("RANK"))
    assert isinstance(answer, bytes)
    assert pickle.loads(answer) is None
    calls.forget("a token")
    assert os.environ["RANK"] == "1"
