"""A table of private names of other packages that gpu_magic uses, and functions to look them up.

It also has names without an underscore that are not documented. Those of pynvml are in `devices/binding.py`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

__all__ = ["MODULE_TABLES", "PRIVATE", "has_private", "private", "private_of", "required"]

_NO_STEP = "%gpu_fit raises an error instead of predicting a step of PyTorch"
_BARE = "a block is `with torch.device(...)`, in which a DataLoader cannot shuffle; a warning is shown"
_LEFT_OUT = "blocks include TensorFlow only once it has started; a warning is shown"
_NOT_ASKED = "whether TensorFlow has started is unknown; a warning is shown"
_NO_LIMIT = "--memory-limit has no effect on TensorFlow before it starts; a warning is shown"
MODULE_TABLES = ("_parameters", "_buffers", "_modules")  # of each `nn.Module`
_ALL_ATTRIBUTES = "%to_gpu looks at all attributes of a module, which is slower"
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
    **{f"torch.nn:Module.{name}": ("2.8 to 2.13", _ALL_ATTRIBUTES) for name in MODULE_TABLES},
    "torch._C._autograd:SavedTensor.data": ("2.13", "the memory that graphs keep is not named"),
    "torch:Tensor._base": ("2.13", "%to_gpu turns a view of a parameter into a copy in its graph"),
    "torch.jit:ScriptModule": ("2.8 to 2.13", "a scripted module is moved as other modules are"),
    "jax._src.xla_bridge:_backends": ("0.10", "once JAX has started, it is asked for its GPUs"),
    "jax._src.xla_bridge:backends_are_initialized": (
        "0.10",
        "without _backends, whether JAX has started is unknown; a warning is shown",
    ),
    "jax._src.config:_validate_default_device": (  # accepts our stand-in for a missing device
        "0.10",
        "blocks on a device that JAX lacks do not include JAX; a warning is shown",
    ),
    "jax:Device.local_hardware_id": ("0.10", "a GPU's ordinal is its place among JAX's devices"),
    "jax:Array.unsafe_buffer_pointer": (
        "0.10",
        "memory that JAX shares with other frameworks is counted for each",
    ),
    "jax._src.clusters:ClusterEnv._cluster_types": (
        "0.10",
        "jax.distributed.initialize() needs arguments in engines",
    ),
    "tensorflow.python.eager.context:_context": ("2.21", _NOT_ASKED),
    "tensorflow.python.eager.context:context": ("2.21", _LEFT_OUT),
    "tensorflow.python.eager.context:Context.device_name": ("2.21", _LEFT_OUT),
    "tensorflow.python.eager.context:Context.device_spec": ("2.21", _LEFT_OUT),
    "tensorflow.python.eager.context:PhysicalDevice": ("2.21", _NO_LIMIT),
    "tensorflow.python.eager.context:Context._context_handle": ("2.21", _NOT_ASKED),
    "tensorflow.python.eager.context:Context._physical_devices": (
        "2.21",
        "before TensorFlow starts its devices count as not listed",
    ),
    "tensorflow.python.eager.context:Context._set_device": ("2.21", _LEFT_OUT),
    "tensorflow.python.eager.context:Context._virtual_device_map": ("2.21", _NO_LIMIT),
    "accelerate.state:PartialState._shared_state": (
        "1.15",
        "an Accelerator of an earlier call of gpu_magic.map stays in its engine",
    ),
    "bitsandbytes.functional:_convert_weight_packed_for_cpu_inverse": (
        "0.50",
        "%to_gpu refuses a 4-bit weight that has run on the CPU and is packed for it",
    ),
    "ipykernel.comm:BaseComm._reply_subshell_for": (
        "7.4",
        "messages of a page can be lost after another page has ended",
    ),
    "comm.base_comm:BaseComm._closed": ("0.2", "a panel that marimo has closed counts as open"),
    "ipyparallel:AsyncResult._iopub_streaming_output_callback": (  # overridden
        "9.2",
        "outputs of engines name no GPUs",
    ),
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


def has_private(obj: Any, name: str) -> bool:
    """Return whether an object has the attribute that a name of the table refers to, also if it is None."""
    if name not in PRIVATE:
        raise KeyError(name)
    return hasattr(obj, name.rpartition(":")[2].rpartition(".")[2])


def private_of(obj: Any, name: str) -> Any:
    """Return the attribute of an object that a name of the table refers to. None if it is missing."""
    if name not in PRIVATE:
        raise KeyError(name)
    return getattr(obj, name.rpartition(".")[2], None)
