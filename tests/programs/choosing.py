"""What programs that choose GPUs share. Nothing here has a framework in hand."""

from __future__ import annotations

import ctypes
import os

VARIABLES = (
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_CLIENT_MEM_FRACTION",
)


def variables() -> dict[str, str]:
    """Return the variables with which TensorFlow and JAX are told of memory, those that are set."""
    return {name: os.environ[name] for name in VARIABLES if name in os.environ}


def visible_devices() -> str | None:
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def start_cuda() -> None:
    """Initialize CUDA in this process."""
    ctypes.CDLL("libcuda.so.1").cuInit(0)
