"""PyTorch."""

from __future__ import annotations

import sys

__all__ = ["FRAMEWORK"]


class PyTorch:
    """`torch`, through `torch.cuda`."""

    name = "PyTorch"

    def has_gpu(self) -> bool:
        """Tell PyTorch's own flag, which misses the cuInit of `torch.cuda.is_available()`."""
        ask = getattr(sys.modules.get("torch.cuda"), "is_initialized", None)
        return ask is not None and bool(ask())

    def line_for(self, ordinal: int) -> str:
        return f"torch.cuda.set_device({ordinal})"


FRAMEWORK = PyTorch()
