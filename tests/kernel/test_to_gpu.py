"""`%to_gpu`, `%to_cpu` and `%gpu_free` in a real kernel, on PyTorch's pretend accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.machine import CARDS

if TYPE_CHECKING:
    from tests.kernel.conftest import Kernel

SETUP = """
import torch
from types import SimpleNamespace
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Embedding(100, 32), torch.nn.Linear(32, 100, bias=False))
model[1].weight = model[0].weight
optimizer = torch.optim.Adam(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
x = torch.arange(8)
batch = {"x": x, "rows": [x[2:4]]}
def step():
    loss = model(batch["x"]).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    return loss.item()
step();
"""


@pytest.fixture
def kernel(pretend_kernel: Kernel) -> Kernel:
    """Return a kernel whose PyTorch has an accelerator, with variables to move."""
    assert pretend_kernel.run(SETUP).status == "ok"
    return pretend_kernel


def test_there_and_back(kernel: Kernel) -> None:
    plan = kernel.run("%to_gpu model optimizer batch scheduler --dry-run").stdout.splitlines()
    assert plan == [
        "model      Sequential: 2 arrays  25.0 KiB  cpu → pretend:0",
        "optimizer  Adam: 2 arrays        25.0 KiB  cpu → pretend:0",
        "batch      dict: 2 arrays        64 bytes  cpu → pretend:0",
        "scheduler  StepLR                          nothing to move",
        "50.1 KiB would move to pretend:0, where 16.0 GiB are free. Nothing was changed.",
    ]
    assert kernel.run("model[0].weight.device.type, batch['x'] is x").text == "('cpu', True)"
    moved = kernel.run("%to_gpu model optimizer batch scheduler").stdout.splitlines()
    left = "Not named, and not tied to what has moved: x, with the old copy (64 bytes on cpu)."
    assert moved[:-1] == [*plan[:4], "50.1 KiB moved to pretend:0."]
    assert moved[-1].startswith(left)
    tied = kernel.run("model[1].weight is model[0].weight, batch['x'].device.type, x.device.type")
    assert tied.text == "(True, 'pretend', 'cpu')"
    assert kernel.run("step();").status == "ok"
    assert "pretend:0 → pretend:2" in kernel.run("%to_gpu model optimizer batch --device 2").stdout
    assert kernel.run("%to_cpu model optimizer batch").stdout.splitlines()[-1] == "50.1 KiB moved to the CPU."
    assert kernel.run("step();").status == "ok"


def test_memory_is_given_back(kernel: Kernel) -> None:
    kernel.run("%to_gpu model")
    kernel.run("torch.ones(1 << 20, device='pretend:1')")
    kernel.run("def f():\n    big = torch.ones(1 << 22, device='pretend:2')\n    1 / 0")
    kernel.run("f()")
    assert kernel.run("%gpu_free").stdout.splitlines() == [
        "Dropped the last error's traceback (16 MiB) and Out[4] (4.0 MiB).",
        "pretend:0: 25.0 KiB → 25.0 KiB in use",
        "pretend:1: 4.0 MiB → 0 bytes in use",
        "pretend:2: 16 MiB → 0 bytes in use",
        "Still held by model (25.0 KiB) and optimizer (25.0 KiB).",
    ]
    assert kernel.run("4 in Out, '_4' in globals()").text == "(False, False)"
    kernel.run("graph = (torch.ones(1 << 18, device='pretend:3', requires_grad=True) * 2).exp().sum()")
    more = "2.0 MiB more that no variable was seen to hold: the graph of a loss"
    assert more in kernel.run("%gpu_free").stdout


def test_how_much_is_free_is_the_driver_s_figure(kernel: Kernel) -> None:
    kernel.run(
        "from gpu_magic.process.physical import LazySnapshot, free_bytes\n"
        "from gpu_magic.frameworks.target import LogicalDevice\n"
        "def free(*device): return free_bytes(LogicalDevice(*device), LazySnapshot())"
    )
    kernel.run("%gpus 2,0")
    free = CARDS[2].total - (CARDS[2].used or 0) - CARDS[2].reserved
    assert kernel.run("free('gpu', 0), free('gpu', 5)").text == f"({free}, None)"
    assert kernel.run("free('gpu', 0, 'pretend'), 0 < free('cpu', 0) < 2**50").text == "(None, True)"
