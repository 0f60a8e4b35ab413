"""Gives PyTorch an accelerator called "pretend", with four devices.

PyTorch imports it by itself, at the end of its own import: the entry point beside this file says so.
"""

import sys
import types

import pretend_native  # built by `tests.native.build_pretend`
import torch

torch.utils.rename_privateuse1_backend("pretend")

device = types.ModuleType("torch.pretend")
device.is_available = lambda: True
device.is_initialized = lambda: True
device.device_count = lambda: 4
device.current_device = pretend_native.current
device.set_device = lambda index: pretend_native.set_current(torch.device("pretend", index).index)
device._is_in_bad_fork = lambda: False
device.manual_seed_all = lambda seed: None
device.get_rng_state = lambda device="pretend": torch.get_rng_state()
device.set_rng_state = lambda state, device="pretend": torch.set_rng_state(state)
device.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
torch._register_device_module("pretend", device)
sys.modules["torch.pretend"] = device
torch.utils.generate_methods_for_privateuse1_backend()


def load() -> None:
    """Be called by PyTorch; all is done by then."""
