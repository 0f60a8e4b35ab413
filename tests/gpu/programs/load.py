"""Work for the GPU: one matrix product after another."""

from __future__ import annotations

import time

__all__ = ["busy"]


def busy(seconds: float, *, size: int = 4096) -> None:
    """Keep the current CUDA device busy with PyTorch for some seconds."""
    import torch

    one = torch.randn(size, size, device="cuda")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(10):
            one = torch.nn.functional.normalize(one @ one)
        torch.cuda.synchronize()
