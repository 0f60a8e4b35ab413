"""A table of the frameworks' private names that gpu_magic uses, and functions to look them up."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

__all__ = ["PRIVATE", "private", "private_of", "required"]

_NO_STEP = "%gpu_fit raises an error instead of predicting a step of PyTorch"
_BARE = "a block is `with torch.device(...)`, in which a DataLoader cannot shuffle; a warning is shown"
_LEFT_OUT = "blocks do not include TensorFlow; a warning is shown"
_NO_LIMIT = "--memory-limit has no effect on TensorFlow before it starts; a warning is shown"
# Each name as module:attribute or module:class.attribute. Its value: the versions in which it was found, and
# what happens without it.
PRIVATE = {
    "torch.utils._device:DeviceContext": ("2.8 to 2.13", _BARE),
    "torch.utils._device:_device_constructors": (
        "2.8 to 2.13",
        f"{_BARE}; %gpu_fit fails under torch.set_default_device('cuda')",
    ),
    "torch.utils._device:CURRENT_DEVICE": ("2.8 to 2.13", "torch.compile may compile again after a block"),
    "torch._C:_len_torch_function_stack": ("2.8 to 2.13", _BARE),
    "torch._C:_pop_torch_function_stack": ("2.8 to 2.13", _BARE),
    "torch._C:_push_on_torch_function_stack": ("2.8 to 2.13", _BARE),
    "torch:_GLOBAL_DEVICE_CONTEXT": ("2.8 to 2.13", _BARE),
    "torch.cuda:_lazy_call": ("2.13", "--memory-limit limits PyTorch only once CUDA has started"),
    "torch:Tensor._indices": ("2.13", "memory of a sparse tensor is found only if it is coalesced"),
    "torch:Tensor._values": ("2.13", "memory of a sparse tensor is found only if it is coalesced"),
    "torch._subclasses.fake_tensor:FakeTensorMode": ("2.13", _NO_STEP),
    "torch.nn:Module._forward_hooks": (
        "2.13",
        "hooks of a model change the notebook's variables in %gpu_fit",
    ),
    "torch.nn:Module._forward_pre_hooks": (
        "2.13",
        "hooks of a model change the notebook's variables in %gpu_fit",
    ),
    "torch.nn:Module._apply": (
        "2.13",
        "%to_gpu does not update modules that store their device there; steps are not predicted",
    ),
    "torch:Tensor._base": ("2.13", "%to_gpu turns a view of a parameter into a copy in its graph"),
    "jax._src.xla_bridge:_backends": ("0.10", "JAX counts as not started; a warning is shown"),
    "tensorflow.python.eager.context:_context": ("2.21", "TensorFlow counts as not started"),
    "tensorflow.python.eager.context:context": ("2.21", _LEFT_OUT),
    "tensorflow.python.eager.context:PhysicalDevice": ("2.21", _NO_LIMIT),
    "tensorflow.python.eager.context:Context._context_handle": ("2.21", "TensorFlow counts as not started"),
    "tensorflow.python.eager.context:Context._physical_devices": (
        "2.21",
        "before TensorFlow starts its devices count as not listed",
    ),
    "tensorflow.python.eager.context:Context._set_device": ("2.21", _LEFT_OUT),
    "tensorflow.python.eager.context:Context._virtual_device_map": ("2.21", _NO_LIMIT),
}


def private(name: str) -> Any:
    """Return the object that a name of the table refers to. None if it or the framework is missing.

    >>> private("torch.cuda:_lazy_call")
    """
    if name not in PRIVATE:
        raise KeyError(name)
    module, _, path = name.partition(":")
    if module.partition(".")[0] not in sys.modules:
        return None
    try:
        found: Any = sys.modules.get(module) or import_module(module)
        for attribute in path.split("."):
            found = getattr(found, attribute)
    except (ImportError, AttributeError):
        return None
    return found


def required(name: str) -> Any:
    """Return the object that a name of the table refers to.

    Raises
    ------
    ImportError
        The framework lacks the name.

    """
    found = private(name)
    if found is None:
        raise ImportError(f"{name.replace(':', '.')} is not there")
    return found


def private_of(obj: Any, name: str) -> Any:
    """Return the attribute of an object that a name of the table refers to. None if it is missing."""
    if name not in PRIVATE:
        raise KeyError(name)
    return getattr(obj, name.rpartition(".")[2], None)
