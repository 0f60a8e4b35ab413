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
    plan = kernel.run("%to_gpu model optimizer batch scheduler --dry-run").stdout
    assert plan == (
        "model      Sequential: 2 arrays  25.0 KiB  cpu → pretend:0\n"
        "optimizer  Adam: 2 arrays        25.0 KiB  cpu → pretend:0\n"
        "batch      dict: 2 arrays        64 bytes  cpu → pretend:0\n"
        "scheduler  StepLR                          nothing to move\n"
        "50.1 KiB would move to pretend:0, where 16.0 GiB are free. Nothing was changed.\n"
    )
    assert kernel.run("model[0].weight.device, batch['x'] is x").text == "(device(type='cpu'), True)"
    moved = kernel.run("%to_gpu model optimizer batch scheduler").stdout
    assert moved.splitlines()[:4] == plan.splitlines()[:4]
    assert moved.splitlines()[4:] == [
        "50.1 KiB moved to pretend:0.",
        "Not named, and not tied to what has moved: x, with the old copy (64 bytes on cpu). Names that belong together "
        "move together in one line.",
    ]
    assert kernel.run("model[1].weight is model[0].weight, batch['x'].device, x.device").text == (
        "(True, device(type='pretend', index=0), device(type='cpu'))"
    )
    assert kernel.run("step();").status == "ok"
    assert "All of it is on pretend:0 already." in kernel.run("%to_gpu model").stdout
    assert "pretend:0 → pretend:2" in kernel.run("%to_gpu model optimizer batch --device 2").stdout
    assert kernel.run("%to_cpu model optimizer batch").stdout.splitlines()[-1] == "50.1 KiB moved to the CPU."
    assert kernel.run("step();").status == "ok"


def test_all_says_that_datasets_stay(kernel: Kernel) -> None:
    kernel.run("data = torch.utils.data.TensorDataset(x)")
    assert kernel.run("%to_gpu --all").stdout.splitlines()[-1] == (
        "Not moved: data, with the old copy (64 bytes on cpu). Datasets and outputs stay where they are."
    )


def test_all_of_them_and_what_stays(kernel: Kernel) -> None:
    kernel.run(
        "import tensorflow as tf; v = tf.Variable([1.0]); a = __import__('numpy').ones(2); n = 3; y = x"
    )
    reply = kernel.run("%to_gpu --all")
    assert reply.stdout.splitlines() == [
        "model      Sequential: 2 arrays  25.0 KiB  cpu → pretend:0",
        "optimizer  Adam: 2 arrays        25.0 KiB  cpu → pretend:0",
        "x          Tensor (8,): 1 array  64 bytes  cpu → pretend:0",
        "batch      dict: 1 array          0 bytes  cpu → pretend:0",
        "y          Tensor (8,)                     shared with x",
        "50.1 KiB moved to pretend:0.",
        "v stays: TensorFlow can't move a tf.Variable: create it again in a cell with %%on_gpu, and assign to it.",
    ]
    assert kernel.run("y is x, batch['x'] is x, x.device.type").text == "(True, True, 'pretend')"
    assert "tf.Variable" in kernel.run("%to_gpu x v").stderr


def test_out_of_memory_loses_nothing(kernel: Kernel) -> None:
    kernel.run("import pretend_native; pretend_native.fail_after(3)")
    reply = kernel.run("%to_gpu model optimizer batch")
    assert "UsageError: pretend:0 ran out of memory after " in reply.stderr
    assert "All is as it was." in reply.stderr
    assert (
        kernel.run("torch.accelerator.memory_reserved(0), model[0].weight.device.type").text == "(0, 'cpu')"
    )
    kernel.run("pretend_native.fail_after(0); pretend_native.set_total(0, 1000)")
    assert (
        "50.1 KiB do not fit on pretend:0, where 1000 bytes are free."
        in kernel.run("%to_gpu model optimizer batch").stderr
    )


def test_an_interrupt_half_way_loses_nothing(kernel: Kernel) -> None:
    """A thing that takes its time to move itself, after the model has been copied."""
    kernel.run(
        "class Slow:\n"
        "    __module__ = 'torch'  # another package's\n"
        "    def __init__(self): self.x = torch.ones(2)\n"
        "    def to(self, device):\n"
        "        import os, signal, time\n"
        "        os.kill(os.getpid(), signal.SIGINT); time.sleep(5)\n"
        "slow = Slow()"
    )
    reply = kernel.run("%to_gpu model batch slow")
    assert reply.status == "error"
    assert "KeyboardInterrupt" in reply.traceback
    assert kernel.run(
        "model[0].weight.device.type, batch['x'] is x, torch.accelerator.memory_allocated(0)"
    ).text == ("('cpu', True, 0)")


def test_a_bar_shows_what_takes_over_a_second(kernel: Kernel) -> None:
    kernel.run(
        "class Slow:\n"
        "    __module__ = 'torch'  # another package's\n"
        "    def __init__(self): self.x = torch.ones(2)\n"
        "    def to(self, device):\n"
        "        import time; time.sleep(0.6)\n"
        "        self.x = self.x.to(device)\n"
        "slow = [Slow() for _ in range(3)]"
    )
    reply = kernel.run("%to_gpu model slow")
    assert "<progress" in reply.html
    assert "<progress" not in kernel.run("%to_gpu batch").html


def test_how_much_is_free_is_the_drivers_figure(kernel: Kernel) -> None:
    kernel.run(
        "from gpu_magic.process.physical import LazySnapshot, free_bytes\n"
        "from gpu_magic.selection.target import LogicalDevice\n"
        "def free(*device): return free_bytes(LogicalDevice(*device), LazySnapshot())"
    )
    kernel.run("%gpus 2,0")
    free = CARDS[2].total - (CARDS[2].used or 0) - CARDS[2].reserved
    assert kernel.run("free('gpu', 0), free('gpu', 5)").text == f"({free}, None)"
    assert kernel.run("free('gpu', 0, 'pretend'), 0 < free('cpu', 0) < 2**50").text == "(None, True)"


def test_memory_is_given_back(kernel: Kernel) -> None:
    kernel.run("%to_gpu model")
    kernel.run("torch.ones(1 << 20, device='pretend:1')")
    kernel.run("torch.ones(1 << 18, device='pretend:1')")
    kernel.run("def f():\n    big = torch.ones(1 << 22, device='pretend:2')\n    1 / 0")
    kernel.run("f()")
    assert kernel.run("%gpu_free --dry-run").stdout == (
        "Would drop the last error's traceback (16 MiB), Out[4] (4.0 MiB), Out[5] (1.0 MiB).\n"
        "Still held by model (25.0 KiB), optimizer (25.0 KiB).\n"
    )
    assert kernel.run("torch.accelerator.memory_allocated(2) >> 20").text == "16"
    assert kernel.run("%gpu_free").stdout == (
        "Dropped the last error's traceback (16 MiB), Out[4] (4.0 MiB), Out[5] (1.0 MiB).\n"
        "pretend:0: 25.0 KiB → 25.0 KiB in use\n"
        "pretend:1: 5.0 MiB → 0 bytes in use\n"
        "pretend:2: 16 MiB → 0 bytes in use\n"
        "Still held by model (25.0 KiB), optimizer (25.0 KiB).\n"
    )
    assert kernel.run("4 in Out, '_4' in globals()").text == "(False, False)"
    assert "No output and no traceback holds GPU memory." in kernel.run("%gpu_free --dry-run").stdout
    kernel.run("graph = (torch.ones(1 << 18, device='pretend:3', requires_grad=True) * 2).exp().sum()")
    assert (
        "2.0 MiB more that no variable was seen to hold: the graph of a loss"
        in kernel.run("%gpu_free").stdout
    )


def test_it_says_what_belongs_to_it_and_was_left_behind(kernel: Kernel) -> None:
    told = kernel.run("%to_gpu model").stdout.splitlines()
    assert told[1:] == [
        "25.0 KiB moved to pretend:0.",
        "optimizer has some of what has moved, and 25.0 KiB elsewhere: move optimizer as well.",
    ]
    assert kernel.run("%to_gpu optimizer").stdout.splitlines()[1:] == ["25.0 KiB moved to pretend:0."]
    kernel.run(
        "net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)); params = list(net.parameters())"
    )
    assert (
        "net has some of what has moved, and 24 bytes elsewhere: move net as well."
        in kernel.run("%to_gpu params").stdout
    )


def test_a_function_that_two_variables_use_ties_nothing(kernel: Kernel) -> None:
    kernel.run("a, b = ([torch.nn.functional.relu, print, torch.ones(2)] for _ in range(2))\nonly = [print]")
    assert kernel.run("%to_gpu a only").stdout == (
        "a     list: 1 array  8 bytes  cpu → pretend:0\n"
        "only  list                    nothing to move\n"
        "8 bytes moved to pretend:0.\n"
    )
    assert (
        kernel.run("net = torch.nn.Linear(2, 2); net.act = print; rest = [print, torch.ones(2)]").status
        == "ok"
    )
    assert kernel.run("%to_gpu net").stdout.splitlines()[1:] == ["24 bytes moved to pretend:0."]


def test_memory_is_free_behind_a_move_and_an_error(kernel: Kernel) -> None:
    kernel.run(
        "import gc; gc.disable(); big = torch.ones(1 << 20, device='pretend:1'); allocated = torch.accelerator.memory_allocated"
    )
    kernel.run("%to_gpu big nothing")
    kernel.run("%to_cpu big --dry-run")
    kernel.run("%to_cpu big")
    assert kernel.run("allocated(1)").text == "0"


def test_what_is_converted_where_it_is_is_not_said_to_have_moved(kernel: Kernel) -> None:
    kernel.run("import numpy as np; a = np.ones(2)")
    dry = kernel.run("%to_gpu a --numpy torch --device cpu --dry-run").stdout.splitlines()[-1]
    assert dry == "NumPy's arrays would become PyTorch's, in the memory that they have. Nothing was changed."
    said = kernel.run("%to_gpu a --numpy torch --device cpu").stdout.splitlines()[-1]
    assert said == "NumPy's arrays have become PyTorch's, in the memory that they had: nothing was copied."
    assert kernel.run("type(a).__name__").text == "'Tensor'"
