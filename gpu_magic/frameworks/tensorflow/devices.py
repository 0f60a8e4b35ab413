"""TensorFlow's context and devices, and what other names they have.

The context is TensorFlow's eager context (TensorFlow 2.21, python/eager/context.py). Creating it starts
nothing; asking it for devices initializes CUDA.
"""

from __future__ import annotations

import sys
from typing import Any

from gpu_magic.selection.target import LogicalDevice
from gpu_magic.text import listed

__all__ = [
    "context",
    "cuda_ordinals",
    "existing_context",
    "index_of",
    "is_started",
    "logical_device",
    "name_of",
    "problem",
]


def existing_context() -> Any:
    """Return the context; None before TensorFlow has created it."""
    return getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)


def context() -> Any:
    """Return the context, and create it where there is none yet; that starts nothing."""
    return sys.modules["tensorflow.python.eager.context"].context()


def is_started() -> bool:
    return getattr(existing_context(), "_context_handle", None) is not None


def problem(device: LogicalDevice) -> str:
    """Return why TensorFlow can't compute on a device, as a clause; empty where it can.

    TensorFlow itself silently uses the CPU where a device is missing.
    """
    tf: Any = sys.modules["tensorflow"]
    if device.type not in ("", "cuda"):
        return f"TensorFlow has no {device.type}"
    kind = device.kind.upper()
    found = cuda_ordinals(kind)
    if device.index in found:
        return ""
    if kind == "CPU":
        return f"TensorFlow has {listed(f'cpu:{index}' for index in found)}"
    if not tf.test.is_built_with_gpu_support():
        return f"TensorFlow {tf.__version__} is built without CUDA"
    names = [f"cuda:{ordinal} (as /GPU:{index})" for index, ordinal in enumerate(found)]
    return f"TensorFlow sees {listed(names, 'no GPU')}"


def name_of(device: LogicalDevice) -> str:
    """Return `/GPU:i`, where i counts its visible devices, which can be fewer than CUDA's."""
    if device.kind == "cpu":
        return f"/CPU:{device.index}"
    found = cuda_ordinals("GPU")
    return f"/GPU:{found.index(device.index) if device.index in found else device.index}"


def index_of(device: Any) -> int:
    """Return the number in a device's name."""
    return int(device.name.rpartition(":")[2])


def cuda_ordinals(kind: str) -> list[int]:
    """Return the CUDA ordinal of each logical device of a kind; of CPUs TensorFlow's own index.

    TensorFlow orders them like its physical devices, in whatever order they were made visible.
    """
    tf: Any = sys.modules["tensorflow"]
    found: list[int] = []
    for physical in sorted(tf.config.get_visible_devices(kind), key=index_of):
        logical = tf.config.get_logical_device_configuration(physical)
        found += [index_of(physical)] * (len(logical) if logical else 1)
    return found if kind == "GPU" else list(range(len(found)))


def logical_device(device: str) -> LogicalDevice | str:
    """Return what gpu_magic calls a device of TensorFlow; TensorFlow's name where that is no CPU or GPU."""
    kind, _, index = device.rpartition("device:")[2].partition(":")
    if kind not in ("CPU", "GPU") or not index.isdecimal():
        return device
    if kind == "CPU":
        return LogicalDevice("cpu", int(index))
    return LogicalDevice("gpu", cuda_ordinals("GPU")[int(index)], "cuda")
