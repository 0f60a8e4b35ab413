"""`%to_gpu`, `%to_cpu` and `%gpu_free` in a real kernel, on PyTorch's pretend accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.machine import CARDS

if TYPE_CHECKING:
    from collections.abc import Callable

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


def test_names_attributes_and_items(kernel: Kernel) -> None:
    kernel.run("state = SimpleNamespace(x=x, pair=(x, x)); key = 'x'; rows = [x, x + 1]")
    assert kernel.run("%to_gpu state.x batch['x'] rows[1]").stdout == (
        "state.x     Tensor (8,): 1 array  64 bytes  cpu → pretend:0\n"
        "batch['x']  Tensor (8,)                     shared with state.x\n"
        "rows[1]     Tensor (8,): 1 array  64 bytes  cpu → pretend:0\n"
        "128 bytes moved to pretend:0.\n"
        "Not named, and not tied to what has moved: x, batch, state, rows, with the old copy (64 bytes on cpu). Names "
        "that belong together move together in one line.\n"
    )
    assert (
        kernel.run("state.x is batch['x'], rows[0] is x, rows[1].device.type").text
        == "(True, True, 'pretend')"
    )
    assert kernel.run('%to_gpu batch[key] data["x y"]').stderr == "UsageError: data is not a variable here.\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%to_gpu modle", "modle is not a variable here; did you mean model?"),
        ("%to_gpu", "Which variables? %to_gpu model batch names them, --all is every one."),
        ("%to_cpu", "Which variables? %to_cpu model batch names them, --all is every one."),
        ("%to_gpu model.weigth", "model.weigth raises AttributeError: 'Sequential' object has no attribute 'weigth'"),
        ("%to_gpu batch['z']", "batch['z'] raises KeyError: 'z'"),
        ("%to_gpu model.parameters()", "model.parameters() is not a variable, attribute or item, and what is moved needs a name"),
        ("%to_gpu x[1]", "x[1] is a part of a Tensor: move x."),
        ("%to_gpu pair[0]", "pair is a tuple, which can't be changed in part: move pair."),
        ("%to_gpu a+b", "a+b is not a variable, attribute or item, and what is moved needs a name"),
        ("%to_gpu model[", "'model[' is not a variable."),
        ("%to_gpu n", "There is nothing to move in n (int): no framework's arrays."),
        ("%to_gpu a", "a is a NumPy array, which has no device: --numpy torch (or numpy='torch') makes it a PyTorch tensor there; "),
        ("%to_gpu x --device 7", "x: cuda:7 can't be used: PyTorch sees pretend:0, pretend:1, pretend:2 and pretend:3."),
        ("%to_gpu x --device 0,1", "Variables go to one device, and 0,1 names 2."),
        ("%to_gpu x --device nowhere", "'nowhere' is not a device"),
        ("%to_gpu x --device", "--device"),
        ("%to_gpu x --numpy jax", "NumPy's arrays can't become JAX's before it is imported: import jax."),
        ("%to_gpu x --numpy pandas", "--numpy"),
        ("%to_gpu x --all", "--all is every variable, and x is also named: use one of the two."),
        ("%to_gpu x --dryrun", "There is no --dryrun; did you mean --dry-run?"),
        ("%gpu_free x", "%gpu_free takes no names: it frees memory on all GPUs; del x drops a variable."),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(kernel: Kernel, line: str, said: str) -> None:
    kernel.run("n, pair, a = 3, (x, x), __import__('numpy').ones(2)")
    reply = kernel.run(line)
    assert said in reply.stderr
    assert reply.stderr.count("\n") == 1
    assert (
        kernel.run(
            "{t.device.type for t in [x, *pair, *batch.values(), *model.parameters()] if hasattr(t, 'device')}"
        ).text
        == "{'cpu'}"
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


def test_a_physical_gpu_can_be_named(kernel: Kernel) -> None:
    kernel.run("%gpus 2,0")
    assert "moved to pretend:1" in kernel.run("%to_gpu x --device smi:0").stdout


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


def test_nothing_to_give_back(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel()
    kernel.run("%load_ext gpu_magic")
    assert kernel.run("%gpu_free").stdout == "This process has no memory on a GPU.\n"


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


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%to_gpu x --device 1 model", "pretend:1"),
        ("%to_gpu --device=1 x model", "pretend:1"),
        ("%to_gpu (x, model) --device 1", "pretend:1"),
        ("%to_gpu [x, model]; --device 1", "pretend:1"),
        ("%to_gpu x, model --device 1  # both", "pretend:1"),
        ("%%on_gpu 1\n%to_gpu x model", "pretend:1"),
    ],
)
def test_ways_to_write_it(kernel: Kernel, line: str, said: str) -> None:
    kernel.run(line)
    assert kernel.run("f'{x.device} {model[0].weight.device}'").text == f"'{said} {said}'"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "%to_gpu model cuda:1",
            "cuda:1 is not a variable here. Give the device with --device cuda:1.",
        ),
        ("%to_gpu 0 x", "0 is not a variable here. Give the device with --device 0."),
        ("%to_gpu model to 1", "to is not a variable here. Give the device with --device 1."),
        ("%to_gpu all", "Every variable is --all: %to_gpu --all."),
        ("%to_gpu x --device -1", "'-1': devices are numbered from 0; cpu is the CPU."),
        ("%to_gpu x.T", "x.T is a part of a Tensor: move x."),
        ("%to_gpu frozen.x", "frozen is a Frozen, which can't be changed in part: move frozen."),
        ('%to_gpu batch[ "y" ]', "raises KeyError: 'y'"),
    ],
)
def test_what_people_try_first(kernel: Kernel, line: str, said: str) -> None:
    kernel.run(
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass Frozen:\n    x: object\nfrozen = Frozen(x)"
    )
    reply = kernel.run(line)
    assert said in reply.stderr
    assert reply.stderr.count("\n") == 1


def test_all_moves_what_can_be_moved_and_names_the_rest(kernel: Kernel) -> None:
    kernel.run(
        "import tensorflow as tf; t = tf.ones(3); meta = torch.ones(2, device='meta'); a = __import__('numpy').ones(1)"
    )
    said = kernel.run("%to_gpu --all").stdout
    assert "t stays: " in said
    assert "built without CUDA" in said
    assert "meta stays: A Tensor of shape (2,) is on the meta device" in said
    assert "\na stays" not in said
    assert kernel.run("model[0].weight.device.type").text == "'pretend'"


def test_a_dry_run_shows_what_does_not_fit(kernel: Kernel) -> None:
    kernel.run("import pretend_native; pretend_native.set_total(0, 1000)")
    said = kernel.run("%to_gpu model batch --dry-run").stdout
    assert said.splitlines()[-1] == (
        "25.1 KiB do not fit on pretend:0, where 1000 bytes are free. Nothing was changed."
    )
    assert len(said.splitlines()) == 3


def test_memory_is_free_behind_a_move_and_an_error(kernel: Kernel) -> None:
    kernel.run(
        "import gc; gc.disable(); big = torch.ones(1 << 20, device='pretend:1'); allocated = torch.accelerator.memory_allocated"
    )
    kernel.run("%to_gpu big nothing")
    kernel.run("%to_cpu big --dry-run")
    kernel.run("%to_cpu big")
    assert kernel.run("allocated(1)").text == "0"


def test_only_what_nobody_else_holds_is_dropped(kernel: Kernel) -> None:
    kernel.run(
        "_cache = torch.ones(1 << 18, device='pretend:1')\nkept = torch.ones(1 << 18, device='pretend:1')"
    )
    kernel.run("_cache")
    kernel.run("kept")
    kernel.run("kept * 2")
    said = kernel.run("%gpu_free").stdout.splitlines()
    assert said[0] == "Dropped Out[6] (1.0 MiB)."
    assert "pretend:1: 3.0 MiB → 2.0 MiB in use" in said
    assert kernel.run("_cache.device.type, kept is Out[5]").text == "('pretend', True)"


def test_or_cpu_moves_to_the_cpu_and_says_so(kernel: Kernel) -> None:
    kernel.run("%to_gpu x --device 1")
    assert kernel.run("%to_gpu x --device 7 --or-cpu").stdout.splitlines() == [
        "Moving to the CPU: x: cuda:7 can't be used: PyTorch sees pretend:0, pretend:1, pretend:2 and pretend:3.",
        "x  Tensor (8,): 1 array  64 bytes  pretend:1 → cpu",
        "64 bytes moved to the CPU.",
    ]
    assert kernel.run("%to_gpu x --or-cpu").stdout.splitlines()[-1] == "64 bytes moved to pretend:0."


def test_what_is_converted_where_it_is_is_not_said_to_have_moved(kernel: Kernel) -> None:
    kernel.run("import numpy as np; a = np.ones(2)")
    dry = kernel.run("%to_gpu a --numpy torch --device cpu --dry-run").stdout.splitlines()[-1]
    assert dry == "NumPy's arrays would become PyTorch's, in the memory that they have. Nothing was changed."
    said = kernel.run("%to_gpu a --numpy torch --device cpu").stdout.splitlines()[-1]
    assert said == "NumPy's arrays have become PyTorch's, in the memory that they had: nothing was copied."
    assert kernel.run("type(a).__name__").text == "'Tensor'"
