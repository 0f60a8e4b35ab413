"""Work for the GPU: one matrix product after another."""

from __future__ import annotations

import time

from tests.gpu.programs.common import accelerator

__all__ = ["busy"]


def busy(seconds: float, *, size: int = 4096) -> None:
    """Keep PyTorch's current accelerator busy for some seconds."""
    import torch

    one = torch.randn(size, size).to(accelerator())
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(10):
            one = torch.nn.functional.normalize(one @ one)
        torch.accelerator.synchronize()
