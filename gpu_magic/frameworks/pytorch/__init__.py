"""PyTorch."""

from __future__ import annotations

from gpu_magic.frameworks.pytorch.framework import FRAMEWORK

__all__ = ["FRAMEWORK"]
