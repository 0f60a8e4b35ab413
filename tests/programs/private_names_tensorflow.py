"""What blocks and limits do without one of the private names of TensorFlow, which has not started."""

import sys
import warnings

import tensorflow as tf  # noqa: F401 - it is there, and is not used

from gpu_magic import on_gpu
from gpu_magic.frameworks import get, started
from gpu_magic.frameworks.base import MemorySettings


def without(name):
    """Take a private name away, and return what is warned of, and what has started."""
    module, _, path = name.partition(":")
    eager = sys.modules[module]
    owner = eager.context() if path.startswith("Context.") else eager
    last = path.rpartition(".")[2]
    delattr(type(owner) if last == "_set_device" else owner, last)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with on_gpu("cpu"):
            pass
        framework = get("tensorflow")
        framework.limit_memory(MemorySettings(limit=1 << 30, gpus=1))
        framework.limit_memory(MemorySettings())
    return {"warned": [str(one.message) for one in caught], "started": started()}
