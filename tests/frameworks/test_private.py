"""Each private name taken away in turn: the public way takes over, or one line says what is lost."""

from __future__ import annotations

import re
import sys
import warnings
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

import gpu_magic
from gpu_magic import on_gpu
from gpu_magic.frameworks import get
from gpu_magic.frameworks.base import MemorySettings
from gpu_magic.frameworks.private import PRIVATE
from gpu_magic.frameworks.settings import FrameworkSettings
from gpu_magic.frameworks.target import LogicalDevice
from tests.conftest import torch_build
from tests.programs.runner import ELSEWHERE

if TYPE_CHECKING:
    from tests.programs.runner import Runner

if ELSEWHERE:
    import torch
    import torch._dynamo  # as in other files with PyTorch: they have one server
    import torch.utils._device


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
    bridge = sys.modules["jax._src.xla_bridge"]
    del bridge._backends
    bridge.backends_are_initialized = lambda: True
    told = get("jax").is_started()
    del bridge.backends_are_initialized
    torch.ones(1, device="pretend:0")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        pools = [dict(get("torch").pools()) for _ in range(2)]
        free = get("torch").free_bytes(LogicalDevice("gpu", 0, "pretend"))
        started = [told, str(get("jax").is_started()), get("jax").has_gpu()]
        FrameworkSettings().check(MemorySettings(growth=True))  # it may be too late, which is said
        get("jax").synchronize()
    return [pools, free, started, [str(one.message) for one in said]]


def shared_memory():
    """Return what is found of JAX's arrays and devices without two of their names, and of a scripted module."""
    import jax

    array = jax.numpy.ones(4)
    scripted = type(torch.jit.script(torch.nn.Linear(1, 1)))
    before = get("torch").unmovable(scripted) != ""
    del torch.jit.ScriptModule
    delattr(type(array), "unsafe_buffer_pointer")
    delattr(jax.Device, "local_hardware_id")
    found = [gpu_magic.devices_of([one, array]) for one in (array, jax.numpy.zeros(2))]
    return [
        before,
        get("torch").unmovable(scripted),
        [list(one.values()) for one in found],
        get("jax").problem(LogicalDevice("cpu", 3)),
    ]


def strict_jax():
    """Return the device of a block that JAX lacks, and what is warned of, if JAX accepts no stand-in for one."""
    import jax

    accepts = jax.default_device

    def strict(device):
        if not isinstance(device, jax.Device | str | None):
            raise ValueError("not a Device")  # noqa: TRY004 - as JAX does
        return accepts(device)

    jax.default_device = strict
    jax.devices()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        device = _in_block_of_torch()
    return [device, [str(one.message) for one in caught]]


def _in_block_of_torch():
    with on_gpu(1):
        return str(torch.ones(1).device)


# Those that a step is predicted with are tried in tests/fit, those of a move in tests/move. PyTorch's own context needs three: without them
# there is none, of ours or of PyTorch's.
_OF_ITS_CONTEXT = ("DeviceContext", "CURRENT_DEVICE", "_device_constructors")
NAMES = [
    name
    for name in sorted(PRIVATE)
    if name.startswith("torch")
    and not re.search("%gpu_fit|%to_gpu", PRIVATE[name][1])
    and not name.endswith((*_OF_ITS_CONTEXT, "ScriptModule", "SavedTensor.data"))
]


@pytest.mark.parametrize("name", NAMES)
def test_without_a_private_name_blocks_and_figures_hold(run: Runner, name: str) -> None:
    found = run(without, name)
    assert found["inside"] == [["pretend:2", 2], ["cpu", 3], ["pretend:1", 1]]
    assert found["outside"] == ["cpu", 0]
    is_of_sparse = name.startswith("torch:Tensor")
    assert found["bytes"] == ([0, 24] if is_of_sparse else [24, 24])
    assert len(found["warned"]) == (0 if is_of_sparse else 1)
    assert all(text.startswith(f"PyTorch {version('torch').partition('+')[0]}") for text in found["warned"])


def test_what_older_versions_do_not_tell_is_said_once(run: Runner) -> None:
    *found, said = run(older_versions)
    assert found == [[{}, {}], None, [True, "Unknown.UNKNOWN", False]]
    assert len(said) == 2
    assert said[1].startswith(f"JAX {version('jax')} does not tell whether it has started.")
    assert said[0].startswith(f"PyTorch {torch_build()[0]} does not count its memory on pretend (")


def test_arrays_and_modules_are_known_without_names_that_are_not_documented(run: Runner) -> None:
    assert run(shared_memory) == [True, "", [[16], [24]], ""]


def test_a_jax_that_accepts_no_stand_in_for_a_device_is_left_out(run: Runner) -> None:
    device, (warned,) = run(strict_jax)
    assert device == "pretend:1"
    assert warned.startswith("JAX cannot be set to cuda:1: ValueError: not a Device. It is left out.")
