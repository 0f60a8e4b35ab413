"""What can go wrong, in words for the person who typed it.

Every message is one line: what is wrong, what was expected, the nearest thing that would work.
"""

from __future__ import annotations

__all__ = [
    "ChoiceError",
    "CudaInitializedError",
    "CudaInitializedWarning",
    "GpuMagicError",
    "SimulationError",
]


class GpuMagicError(Exception):
    """Any error of gpu_magic's own."""


class ChoiceError(GpuMagicError, ValueError):
    """The GPUs asked for can't be chosen; nothing was changed."""


class SimulationError(GpuMagicError, ValueError):
    """A simulated machine was described in words that are not understood."""


class CudaInitializedError(GpuMagicError, RuntimeError):
    """A different choice came after CUDA had been initialised; nothing was changed."""


class CudaInitializedWarning(UserWarning):
    """A different choice came after CUDA had been initialised; nothing was changed."""
