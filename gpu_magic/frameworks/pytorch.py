"""PyTorch."""

from __future__ import annotations

import sys

__all__ = ["FRAMEWORK"]


class PyTorch:
    """`torch`, through `torch.cuda`."""

    name = "PyTorch"

    def is_started(self) -> bool:
        """Tell PyTorch's own flag, which misses the cuInit of `torch.cuda.is_available()`."""
        cuda = sys.modules.get("torch.cuda")
        return cuda is not None and bool(cuda.is_initialized())

    def line_for(self, ordinal: int) -> str:
        return f"torch.cuda.set_device({ordinal})"


FRAMEWORK = PyTorch()
