"""What blocks, `where` and limits do without one of the private names of PyTorch."""

import sys
import warnings

import torch
import torch.utils._device

import gpu_magic
from gpu_magic import on_gpu
from gpu_magic.frameworks import get
from gpu_magic.frameworks.base import MemorySettings
from gpu_magic.frameworks.target import LogicalDevice


def without(name):
    """Take a private name away, and return what is found then, and what is warned of."""
    module, _, path = name.partition(":")
    owner, last = __import__(module, fromlist=["_"]), path.rpartition(".")[2]
    if "." in path:
        setattr(torch.Tensor, last, property(_missing))
    else:
        delattr(owner, last)
    sparse = torch.sparse_coo_tensor(
        torch.tensor([[0, 1]]), torch.tensor([1.0, 2.0]), (4,), check_invariants=False
    )
    coalesced = torch.sparse_coo_tensor(
        torch.tensor([[0, 1]]), torch.tensor([1.0, 2.0]), (4,), is_coalesced=True, check_invariants=False
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        inside = []
        for device in (2, "cpu", 1):
            with on_gpu(3), on_gpu(device):
                inside.append(_state())
        get("torch").limit_memory(MemorySettings(limit=1 << 30, gpus=1))
        found = [sum(gpu_magic.devices_of(one).values()) for one in (sparse, coalesced)]
    warned = [str(one.message).partition(" (")[0] for one in caught]
    return {"inside": inside, "outside": _state(), "bytes": found, "warned": warned}


def _state():
    return [str(torch.ones(1).device), torch.accelerator.current_device_index()]


def _missing(_):
    raise AttributeError


def older_versions():
    """Return what is known where PyTorch counts no memory, as before 2.9, and JAX does not list its backends."""
    import jax  # noqa: F401

    del torch.accelerator.get_memory_info, torch._C._accelerator_getDeviceStats
    del sys.modules["jax._src.xla_bridge"]._backends
    torch.ones(1, device="pretend:0")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        pools = [dict(get("torch").pools()) for _ in range(2)]
        free = get("torch").free_bytes(LogicalDevice("gpu", 0, "pretend"))
        started = [get("jax").is_started(), get("jax").has_gpu()]
    return [pools, free, started, [str(one.message) for one in said]]
