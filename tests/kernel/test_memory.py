"""Cells in a real kernel on PyTorch's pretend accelerator: `%%on_gpu`, `%gpu_time`, `%gpu_free`; and what is free."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.conftest import LIMIT
from tests.machine import CARDS, Driver

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kernel.conftest import Kernel

MIB = 1 << 20
BEGIN = (
    f"import gpu_magic, torch\nMIB = {MIB}\n"
    "def take(size): return torch.empty(size, device='pretend', dtype=torch.uint8)"
)


@pytest.mark.parametrize(
    "line", [f"time.sleep({LIMIT})", pytest.param("await asyncio.sleep(2)", marks=pytest.mark.nightly)]
)
def test_an_interrupt_of_a_cell_on_a_gpu_restores_everything(
    pretend_kernel: Kernel, tmp_path: Path, line: str
) -> None:
    pretend_kernel.run("import asyncio, time, torch")
    cell = f"%%on_gpu 2\ntorch.ones(1)\nopen('started', 'w').close()\n{line}"
    assert pretend_kernel.run_and_interrupt(cell, (tmp_path / "started").exists).status == "error"
    state = "torch.get_default_device(), torch.accelerator.current_device_index(), torch.ones(1).device"
    assert pretend_kernel.run(f"print({state})").stdout == "cpu 0 cpu\n"


def test_peaks_are_the_frameworks_own_and_those_of_the_cell(pretend_kernel: Kernel) -> None:
    kernel = pretend_kernel
    kernel.run(BEGIN)

    def says(code: str) -> str:
        return kernel.run(f"%%gpu_time\n{code}").text

    assert "pretend:0: peak 96 MiB (PyTorch), 64 MiB stayed" in says(
        "x = take(64 * MIB)\ny = take(32 * MIB); del y"
    )
    assert "pretend:0: peak 72 MiB (PyTorch), nothing stayed" in says("y = take(8 * MIB); del y")
    assert "pretend:0: peak 64 MiB (PyTorch), 64 MiB freed" in says("del x")
    inner = "with gpu_magic.gpu_time() as inner:\n    y = take(MIB)\nassert inner.usage.gpus[0].peak == MIB"
    assert "pretend:0: peak 64 MiB (PyTorch)" in says(f"x = take(64 * MIB); del x\n{inner}")
    on_gpu = says("%%on_gpu 1\nz = torch.empty(MIB, dtype=torch.uint8)\nz.device")
    assert "pretend:1: peak 1.0 MiB (PyTorch), 1.0 MiB stayed" in on_gpu
    assert on_gpu.startswith("device(type='pretend', index=1)")
    waits = "%%on_gpu 2\nimport asyncio\nawait asyncio.sleep(0)\ntorch.ones(1).device"
    assert kernel.run(waits).text == "device(type='pretend', index=2)"
    assert kernel.run("torch.ones(1).device").text == "device(type='cpu')"
    # %gpu_time on leaves the framework's own count alone.
    kernel.run("del y, z\n%gpu_time on")
    kernel.run("x = take(128 * MIB); del x")
    reply = kernel.run("y = take(MIB)\nprint(torch.accelerator.max_memory_allocated() // MIB)")
    assert reply.stdout == "128\n"
    assert "peak about 1.0 MiB" in reply.text
    # A cell that awaits and is interrupted is over. ipykernel cancels it when its loop wakes up the next time.
    cell = (
        "import asyncio\nx = take(MIB)\ndisplay('under way')\nfor _ in range(600): await asyncio.sleep(0.1)"
    )
    reply = kernel.run_and_interrupt(cell, lambda: "under way" in kernel.heard)
    assert reply.status == "error"
    assert "Error in callback" not in reply.stdout + reply.stderr
    assert kernel.run("x = take(MIB)").text.count("pretend:0") == 1


def test_a_block_begins_and_ends_when_the_gpu_has_finished(pretend_kernel: Kernel) -> None:
    """On an H200 a loop of 20 steps took 25 ms, by what was printed: PyTorch had not waited for the GPU."""
    pretend_kernel.run(f"{BEGIN}\nimport time, pretend_native\nx = take(MIB)")
    pretend_kernel.run("pretend_native.work(0, 0.5); end = time.monotonic() + 0.5")
    pretend_kernel.run(
        "with gpu_magic.gpu_time() as measured:\n"
        "    is_late = time.monotonic() >= end\n"
        "    pretend_native.work(0, 0.5)"
    )
    waited = "is_late, measured.usage.wall >= 0.5, [bool(count) for count in pretend_native.waits()]"
    interrupted = (
        "import os, signal, threading\n"
        "from gpu_magic.measure.recorder import recorder\n"
        "def interrupt_the_wait(before):\n"
        "    while pretend_native.waits() == before: time.sleep(0.01)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "try:\n"
        "    with gpu_magic.gpu_time() as ended:\n"
        "        pretend_native.work(0, 2)\n"
        "        threading.Thread(target=interrupt_the_wait, args=[pretend_native.waits()]).start()\n"
        "except KeyboardInterrupt:\n"
        "    print(len(recorder()._running))"
    )
    assert pretend_kernel.run(interrupted).stdout == "0\n"
    # Not for those where it has no memory: with CUDA that would take some.
    assert pretend_kernel.run(waited).text == "(True, True, [True, False, False, False])"


def test_what_graphs_keep_is_named_with_the_variable(pretend_kernel: Kernel) -> None:
    kernel = pretend_kernel
    kernel.run(
        f"{BEGIN}\nfrom torch.autograd.graph import saved_tensors_hooks\n"
        "weight = torch.ones(MIB // 4, device='pretend', requires_grad=True)\n"
        "def step(): return (weight.exp() * weight).sum()\n"
        "losses = [step() for _ in range(4)]\n"
        "class Own(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x): ctx.save_for_backward(x * 2); return x.sum()\n"
        "    @staticmethod\n    def backward(ctx, grad): return grad * ctx.saved_tensors[0]\n"
        "own = Own.apply(weight)\n"
        "with saved_tensors_hooks(lambda x: x.clone(), lambda x: 1 / 0): hooked = step()"
    )
    assert (
        kernel.run("%where losses").said.splitlines()[-1].strip() == "pretend:0: 4.0 MiB in graphs (grad_fn)"
    )
    said = kernel.run("%gpu_free").said.splitlines()
    assert any(
        line.startswith("Kept in graphs (grad_fn) of losses (4.0 MiB)") and "own (1.0 MiB)" in line
        for line in said
    )
    short = kernel.run("raise torch.OutOfMemoryError('Tried to allocate 60.00 GiB.')")
    assert "in graphs (grad_fn) of losses (4.0 MiB)" in short.said
    kernel.run("del own, hooked\nfor loss in losses: loss.backward()\nweight.grad = None")
    assert "graphs" not in kernel.run("%gpu_free\n%where losses").said
    # An output with a graph gives back what it keeps.
    kernel.run("step()")
    assert kernel.run("%gpu_free").said.startswith("Dropped Out[")


def test_what_a_function_s_own_state_and_a_deleted_model_hold_is_named_with_the_output(
    pretend_kernel: Kernel,
) -> None:
    """bitsandbytes' 8-bit layers keep their weights as an attribute of the graph's node."""
    kernel = pretend_kernel
    kernel.run(
        f"{BEGIN}\nclass State: pass\n"
        "class Own(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x, state): ctx.state = state; return x.sum()\n"
        "    @staticmethod\n    def backward(ctx, grad): return grad.expand(4).clone(), None\n"
        "state = State(); state.weight = take(2 * MIB)\n"
        "out = Own.apply(torch.ones(4, device='pretend', requires_grad=True), state)\n"
        "model = torch.nn.Embedding(4, MIB // 16, device='pretend')\n"
        "row = model(torch.zeros(1, dtype=torch.long, device='pretend')).sum()"
    )
    assert "MiB in graphs" not in kernel.run("%where out\n%where row").said  # other variables hold it
    kernel.run("del state, model")
    assert "2.0 MiB in graphs" in kernel.run("%where out").said
    assert "1.0 MiB in graphs" in kernel.run("%where row").said
    said = kernel.run("%gpu_free").said
    assert "Kept in graphs (grad_fn) of out (2.0 MiB) and row (1.0 MiB)" in said
    assert "MiB more that no variable holds" not in said


def test_how_much_is_free_is_the_driver_s_figure(pretend_kernel: Kernel) -> None:
    kernel = pretend_kernel
    kernel.run(
        "from gpu_magic.objects.physical import LazySnapshot, free_bytes\n"
        "from gpu_magic.frameworks.target import LogicalDevice\n"
        "def free(*device): return free_bytes(LogicalDevice(*device), LazySnapshot())"
    )
    kernel.run("%gpus 2,0")
    free = CARDS[2].total - (CARDS[2].used or 0) - CARDS[2].reserved
    assert kernel.run("free('gpu', 0), free('gpu', 5)").text == f"({free}, None)"
    assert kernel.run("free('gpu', 0, 'pretend'), 0 < free('cpu', 0) < 2**50").text == "(None, True)"


def test_what_this_kernel_has_launched_is_named_where_memory_is_short(
    start_kernel: Callable[..., Kernel],
) -> None:
    """On a real GPU a task had 100 GiB, and no line said so."""
    kernel = start_kernel(imported=("torch",)).load()
    kernel.run("%gpu_launch --background hog sleep 300")
    kernel.run(
        "import subprocess, time, psutil, torch\n"
        "child = subprocess.Popen(['VLLM::EngineCore', '301'], executable='/bin/sleep')\n"
        "while len(found := [one for one in psutil.Process().children(True) if one.name() == 'sleep']) < 2:\n"
        "    time.sleep(0.05)"
    )
    numbers = "[*({one.pid for one in found} - {child.pid}), child.pid]"
    task, child = json.loads(kernel.run(f"print({numbers})").stdout)
    processes = (task, 18 << 30, 0), (child, 2 << 30, 0)
    kernel.change_machine(Driver((replace(CARDS[0], used=20 << 30, processes=processes), *CARDS[1:])))
    said = kernel.run("raise torch.OutOfMemoryError('Tried to allocate 60.00 GiB. GPU 0 has no more.')")
    free = kernel.run("%gpu_free").said.splitlines()
    kernel.run("child.kill()")
    assert [line for line in free if line.startswith("Also in use: ")] == [
        f"Also in use: sleep (pid {task}, 18.0 GiB on GPU 0), task hog. %gpu_tasks stop hog ends it.",
        f"Also in use: VLLM::EngineCore (pid {child}, 2.0 GiB on GPU 0), started by this kernel. To end it: %gpu_ps end {child}",
    ]
    others = "  others       task hog of this kernel: sleep, 18.0 GiB; this kernel: VLLM::EngineCore, 2.0 GiB"
    assert others in (said.stdout + said.stderr + said.traceback + said.text).splitlines()
