"""What only a kernel shows of a `%%on_gpu` cell; PyTorch has a pretend accelerator. See also tests/on_gpu."""

from __future__ import annotations

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
    cell = f"%%on_gpu 2\nimport time\ntorch.ones(1)\nopen('started', 'w').close()\n{line}"
    reply = kernel.run_and_interrupt(cell, (tmp_path / "started").exists)
    assert reply.status == "error"
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
