"""What only a kernel shows of a `%%on_gpu` cell; PyTorch has a pretend accelerator. See also tests/on_gpu."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.conftest import LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kernel.conftest import Kernel


STATE = "print(torch.get_default_device(), torch.accelerator.current_device_index(), torch.ones(1).device)"
BEFORE = "cpu 0 cpu\n"


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel], pretend: dict[str, str]) -> Kernel:
    """Return a kernel with the extension loaded, and PyTorch with four devices imported."""
    kernel = start_kernel(imported=("torch",), **pretend)
    for cell in ("%load_ext gpu_magic", "import torch", "import asyncio"):
        assert kernel.run(cell).status == "ok"
    return kernel


@pytest.mark.parametrize("line", [f"time.sleep({LIMIT})", "await asyncio.sleep(2)"])
def test_an_interrupt_restores_everything(kernel: Kernel, tmp_path: Path, line: str) -> None:
    def interrupt() -> None:
        while not (tmp_path / "started").exists():
            time.sleep(0.05)
        time.sleep(0.5)  # a sleep of asyncio's ends first, as in a plain cell
        kernel.interrupt()

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    reply = kernel.run(f"%%on_gpu 2\nimport time\ntorch.ones(1)\nopen('started', 'w').close()\n{line}")
    thread.join()
    assert reply.status == "error"
    assert kernel.run(STATE).stdout == BEFORE


def test_it_nests_with_capture_tasks_and_contexts(kernel: Kernel) -> None:
    for cell in (
        "%%capture out\n%%on_gpu 2\nprint(torch.ones(1).device)\n7",
        "%%on_gpu 2\n%%capture out\nprint(torch.ones(1).device)\n7",
    ):
        reply = kernel.run(cell)
        assert (reply.stdout, reply.text) == ("", "")
        shown = "pretend:2\n {'text/plain': '7'}\n"
        assert kernel.run("print(out.stdout, out.outputs[0].data)").stdout == shown
    kernel.run("async def make():\n    await asyncio.sleep(0)\n    return str(torch.ones(1).device)")
    reply = kernel.run("%%on_gpu 3\nawait asyncio.gather(make(), make())")
    assert reply.text == "['pretend:3', 'pretend:3']"
    reply = kernel.run(
        "%%on_gpu 1\nwith torch.device('pretend:3'):\n    await asyncio.sleep(0)\n    a = torch.ones(1).device\n"
        "a, torch.ones(1).device"
    )
    assert reply.text == "(device(type='pretend', index=3), device(type='pretend', index=1))"
    assert kernel.run(STATE).stdout == BEFORE


def test_in_process_in_a_frozen_kernel(kernel: Kernel) -> None:
    where = "torch.accelerator.current_device_index()"
    kernel.run("%gpus 1,2,3")
    kernel.run('import ctypes; ctypes.CDLL("libcuda.so.1").cuInit(0)')
    ways = "any framework: %%on_gpu 1 for one cell, %gpus 2 --in-process from here on"
    assert ways in kernel.run("%gpus 2").text
    assert kernel.run("%gpus 2 --in-process").stdout == (
        "cuda:1 = GPU 2 (NVIDIA A100-SXM4-80GB, 79 GiB free)\n"
        "PyTorch: its current device is pretend:1; the others can still be named.\n"
    )
    assert [kernel.run(cell).text for cell in (where, f"%%on_gpu 2\n{where}", where)] == ["1", "2", "1"]
    assert kernel.run("%gpus reset --in-process").stdout == "PyTorch: as it was.\n"
    assert kernel.run(where).text == "0"
    assert "and no other" in kernel.run("%gpus 0 --in-process").stderr


def test_two_shells_can_have_it(kernel: Kernel) -> None:
    reply = kernel.run(
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "one, two = InteractiveShell(), InteractiveShell()\n"
        "for shell in (one, two):\n    shell.run_line_magic('load_ext', 'gpu_magic')\n"
        "for shell in (two, one):\n    shell.run_line_magic('unload_ext', 'gpu_magic')\n"
        "hooks = [shell.events.callbacks['post_run_cell'] for shell in (one, two)]\n"
        "print(one.input_transformers_post, two.input_transformers_post, *hooks)"
    )
    assert (reply.status, reply.stdout) == ("ok", "[] [] [] []\n")


def test_below_an_error_for_want_of_memory_a_line_asks_what_the_step_takes(kernel: Kernel) -> None:
    """To find that out, nothing of the step runs again, and nothing is kept."""
    kernel.run(
        "import gc, sys, weakref\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.inner = torch.nn.Linear(64, 64)\n"
        "    def forward(self, x):\n"
        "        x = self.inner(x)\n"
        "        return torch.empty(1 << 50, device='pretend') if len(x) > 32 else x\n"
        "def count(frame, event, _):\n"
        "    if event == 'call' and frame.f_code.co_qualname == 'Model.forward': calls.append(event)\n"
        "calls = []; model = Model(); batch = torch.ones(64, 64); living = weakref.ref(model.inner.weight)"
    )
    reply = kernel.run("sys.setprofile(count); loss = model(batch).sum()")
    assert kernel.run("sys.setprofile(None); len(calls)").text == "1"
    assert reply.stdout.splitlines()[-1] == "To predict the memory of this step: %gpu_fit model batch"
    kernel.run("1 / 0")  # the last error is another one
    kernel.run("del model, batch; collected = gc.collect()")
    assert kernel.run("living() is None").text == "True"
