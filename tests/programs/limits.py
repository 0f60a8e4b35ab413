"""What TensorFlow and PyTorch hold of a memory limit, read where they keep it."""

from __future__ import annotations

import sys
from typing import Any

from gpu_magic import choose
from gpu_magic.frameworks import get
from tests.programs.choosing import variables


def context() -> Any:
    return sys.modules["tensorflow.python.eager.context"].context()


def limits() -> dict[str, Any]:
    """Return what a choice of 8 GiB on two GPUs has set."""
    return {
        "variables": variables(),
        "TensorFlow": {
            gpu.name[-5:]: [one.memory_limit for one in devices]
            for gpu, devices in context()._virtual_device_map.items()
        },
        "TensorFlow has started": [context()._context_handle, context()._physical_devices] != [None, None],
        "PyTorch calls when it starts": [
            call.__name__
            for call, _ in sys.modules["torch"].cuda._queued_calls
            if "set_fractions" in call.__name__
        ],
        "PyTorch": get("torch")._limit,
    }


def limits_after_another_choice() -> dict[str, Any]:
    """Choose the same two GPUs without a limit, and return what is left of it."""
    choose("1,2")
    return {
        "variables": variables(),
        "TensorFlow": len(context()._virtual_device_map),
        "PyTorch": get("torch")._limit,
    }
