"""`%gpu_time` in a real kernel: peaks that PyTorch counts, on a pretend accelerator, and an interrupt."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.kernel.conftest import Kernel

MIB = 1 << 20
BEGIN = (
    f"import gpu_magic, torch\nMIB = {MIB}\n"
    "def take(size): return torch.empty(size, device='pretend', dtype=torch.uint8)"
)


def test_peaks_are_the_frameworks_own_and_those_of_the_cell(pretend_kernel: Kernel) -> None:
    kernel = pretend_kernel
    kernel.run(BEGIN)

    def says(code: str) -> str:
        return kernel.run(f"%%gpu_time\n{code}").text

    assert "pretend:0: peak 96 MiB (PyTorch), 64 MiB stayed" in says(
        "x = take(64 * MIB)\ny = take(32 * MIB); del y"
    )
    assert "pretend:0: peak 72 MiB (PyTorch), nothing stayed" in says("y = take(8 * MIB); del y")
    assert "pretend:0: peak 64 MiB (PyTorch), 64 MiB given back" in says("del x")
    inner = "with gpu_magic.gpu_time() as inner:\n    y = take(MIB)\nassert inner.usage.gpus[0].peak == MIB"
    assert "pretend:0: peak 64 MiB (PyTorch)" in says(f"x = take(64 * MIB); del x\n{inner}")
    on_gpu = says("%%on_gpu 1\nz = torch.empty(MIB, dtype=torch.uint8)\nz.device")
    assert "pretend:1: peak 1.0 MiB (PyTorch), 1.0 MiB stayed" in on_gpu
    assert on_gpu.endswith("device(type='pretend', index=1)")
    # %gpu_time on leaves the framework's own count alone.
    kernel.run("del y, z\n%gpu_time on")
    kernel.run("x = take(128 * MIB); del x")
    reply = kernel.run("y = take(MIB)\nprint(torch.accelerator.max_memory_allocated() // MIB)")
    assert reply.stdout == "128\n"
    assert "peak about 1.0 MiB" in reply.text
    assert reply.metadata["gpu_magic"]["versions"]["PyTorch"] == version("torch")
    # A cell that awaits and is interrupted is over. ipykernel cancels it when its loop wakes up the next time.
    cell = (
        "import asyncio\nx = take(MIB)\ndisplay('under way')\nfor _ in range(600): await asyncio.sleep(0.1)"
    )
    reply = kernel.run_and_interrupt(cell, lambda: "under way" in kernel.heard)
    assert reply.status == "error"
    assert "Error in callback" not in reply.stdout + reply.stderr
    assert kernel.run("x = take(MIB)").text.count("pretend:0") == 1
