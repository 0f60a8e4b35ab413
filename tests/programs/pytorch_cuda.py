"""A PyTorch with CUDA, for code of blocks that does not show its use of PyTorch."""

from __future__ import annotations

import sys


class Cuda:
    """A PyTorch with two devices of CUDA, of which these functions stand in for PyTorch's compiled ones.

    CUDA starts by PyTorch's own `_lazy_init`.
    """

    def __init__(self) -> None:
        import torch

        self.current = 0
        torch._C._cuda_getDeviceCount = torch._C._cuda_init = int
        torch.cuda._cudart = torch
        torch.cuda._queued_calls.clear()  # which ask the devices what they are
        torch.cuda._exchange_device = torch.cuda._maybe_exchange_device = self.exchange
        torch.accelerator.current_device_index = lambda: self.exchange(self.current)
        torch.accelerator.device_count = lambda: 2
        torch.accelerator.current_accelerator = lambda: torch.device("cuda")
        torch.accelerator.memory_stats = lambda index: {}

    def exchange(self, index: int) -> int:
        sys.modules["torch"].cuda._lazy_init()
        before, self.current = self.current, index
        return before

    def has_started(self) -> bool:
        return bool(sys.modules["torch"].cuda.is_initialized())

    def start(self) -> int:
        """Return the current device, by code that a block does not see."""
        sys.modules["torch"].cuda._lazy_init()
        return self.current
