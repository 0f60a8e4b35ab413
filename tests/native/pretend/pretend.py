"""Gives PyTorch an accelerator called "pretend", with four devices.

PyTorch imports it by itself, at the end of its own import: the entry point beside this file says so. With
GPU_MAGIC_PRETEND_AS=npu it is called "npu", a name that transformers and accelerate know.
"""

import os
import sys
import types

import pretend_native  # built by `tests.native.build_pretend`
import torch

NAME = os.environ.get("GPU_MAGIC_PRETEND_AS", "pretend")
torch.utils.rename_privateuse1_backend(NAME)


def set_device(which) -> None:
    pretend_native.set_current(which if isinstance(which, int) else torch.device(which).index or 0)


class On:
    """The context manager `torch.cuda.device`."""

    def __init__(self, which) -> None:
        self._index = which if isinstance(which, int) else torch.device(which).index

    def __enter__(self) -> None:
        self._before = pretend_native.current()
        if self._index is not None:
            set_device(self._index)

    def __exit__(self, *_: object) -> None:
        set_device(self._before)


device = types.ModuleType(f"torch.{NAME}")
device.is_available = lambda: True
device.is_initialized = lambda: True
device.device_count = lambda: 4
device.current_device = pretend_native.current
device.set_device = set_device
device.device = On
device._is_in_bad_fork = lambda: False
device.manual_seed = device.manual_seed_all = lambda seed: None
device.get_rng_state = lambda device=NAME: torch.get_rng_state()
device.set_rng_state = lambda state, device=NAME: torch.set_rng_state(state)
device.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
device.is_bf16_supported = lambda: True
device.synchronize = lambda device=None: None
device.empty_cache = lambda: None
device.mem_get_info = lambda index=0: (64 << 30, 80 << 30)
device.memory_allocated = device.max_memory_allocated = lambda index=0: 0
device.reset_peak_memory_stats = lambda index=0: None
torch._register_device_module(NAME, device)
sys.modules[f"torch.{NAME}"] = device
torch.utils.generate_methods_for_privateuse1_backend()


def load() -> None:
    """Be called by PyTorch; all is done by then."""
