"""The private names of frameworks that gpu_magic uses, in one table, and how they are looked up."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

__all__ = ["PRIVATE", "private"]

_NO_STEP = "%gpu_fit predicts no step of PyTorch, and says so"
# Each name, as module:attribute; the versions that were seen to have it; and what happens without it.
# Attributes of objects are not here: `storage._cdata`, `module._forward_hooks`, `fake.fake_device` and
# `mode.fake_tensor_converter`. PyTorch 2.13 has them; without one, %gpu_fit ends with a line that names it.
PRIVATE = {
    "torch._subclasses.fake_tensor:FakeTensorMode": ("2.13", _NO_STEP),
    "torch._subclasses.fake_tensor:FakeTensor": ("2.13", _NO_STEP),
    "torch._subclasses.fake_tensor:FakeCopyMode": ("2.13", _NO_STEP),
    "torch.utils._device:_device_constructors": (
        "2.13",
        "%gpu_fit fails under torch.set_default_device('cuda')",
    ),
    "torch.amp:GradScaler._maybe_opt_step": (
        "2.13",
        "%gpu_fit cannot predict a step with a GradScaler",
    ),
    "torch.nn:Module._wrapped_call_impl": ("2.13", "an out-of-memory error ends without a line for %gpu_fit"),
}


def private(name: str) -> Any:
    """Return what a name of the table stands for; None without it, or without the framework.

    >>> private("torch.nn:Module._wrapped_call_impl")
    """
    if name not in PRIVATE:
        raise KeyError(name)
    module, _, path = name.partition(":")
    if module.partition(".")[0] not in sys.modules:
        return None
    try:
        found: Any = import_module(module)
        for attribute in path.split("."):
            found = getattr(found, attribute)
    except (ImportError, AttributeError):
        return None
    return found
