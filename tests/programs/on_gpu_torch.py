"""`on_gpu` with PyTorch."""

import contextlib
import warnings

import numpy as np
import torch
from torch.utils import _device
from torch.utils.data import DataLoader, TensorDataset

from gpu_magic import on_gpu
from tests.programs.errors import placement_error
from tests.programs.threads import at_once


def made():
    """Return where a tensor is made."""
    return str(torch.ones(1).device)


def current():
    """Return where a tensor is made, and the number of the current device."""
    return [made(), torch.accelerator.current_device_index()]


def state():
    """Return the same, and the default device."""
    return [*current(), str(torch.get_default_device())]


def default_and_current_device():
    found = {}
    with on_gpu(2):
        found["inside"] = state()
        found["of the accelerator"] = str(torch.empty(1, device="pretend").device)
        with on_gpu("gpu:1"):
            found["in an inner block"] = state()
        with on_gpu("cpu"):
            found["on the CPU in between"] = state()
        found["inside again"] = state()
    return {**found, "outside": state()}


def device_names():
    found = []
    for name in ("/GPU:3", "/device:GPU:3", "pretend:3", torch.device("pretend:3"), 3, "3", "GPU:3"):
        with on_gpu(name):
            found.append(made())
    return found


def loaders():
    found, pairs = {}, [(i, float(i)) for i in range(8)]
    data = TensorDataset(torch.arange(8.0), torch.arange(8))
    try:
        with torch.device("pretend:1"):
            list(DataLoader(data, shuffle=True))
    except RuntimeError as error:
        found["with torch.device"] = str(error)
    with on_gpu(1):
        found["batches"] = len(list(DataLoader(data, batch_size=4, shuffle=True)))
        first, again = (next(iter(DataLoader(data, 8, shuffle=True, generator=seeded()))) for _ in range(2))
        found["is the same order"] = first[0].tolist() == again[0].tolist()
        found["of a worker"] = str(next(iter(DataLoader(pairs, 8, num_workers=1)))[0].device)
    return found


def seeded():
    return torch.Generator().manual_seed(1)


def tensors_made_from_others():
    with on_gpu(1):
        return {
            "from_numpy": str(torch.from_numpy(np.ones(2)).device),
            "zeros_like": str(torch.zeros_like(torch.ones(1, device="cpu")).device),
        }


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)])
        self.register_buffer("scale", torch.full((4,), 2.0))

    def forward(self, x):
        for layer in self.inner:
            x = layer(x)
        return x * self.scale + torch.zeros(4)


def training(*devices):
    found = []
    for device in devices:
        with on_gpu(device):
            net = Net()
            optimizer = torch.optim.Adam(net.parameters())
            loss = net(torch.randn(2, 4)).square().mean()
            loss.backward()
            optimizer.step()
            used = [*net.parameters(), *(one.grad for one in net.parameters()), net.scale]
            used += [one["exp_avg"] for one in optimizer.state.values()]
            found.append(sorted({str(one.device) for one in used}))
    return found


def step_counts():
    found = set()
    with on_gpu(1):
        for name in ("Adam", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Rprop"):
            net = torch.nn.Linear(2, 2)
            optimizer = getattr(torch.optim, name)(net.parameters())
            net(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            found |= {str(one["step"].device) for one in optimizer.state.values()}
        average = torch.optim.swa_utils.AveragedModel(net)
    return {"optimizers": sorted(found), "average": str(average.n_averaged.device)}


def compiled(*devices):
    found = []
    function = torch.compile(lambda x: x * 2 + torch.ones(3), backend="eager", fullgraph=True)
    for device in devices:
        with on_gpu(device):
            found.append(str(function(torch.zeros(3)).device))
    return [*found, str(function(torch.zeros(3)).device)]


def states_that_differ_afterwards():
    """Return the default devices before and within a block, where one is another one after it."""
    found = []
    for default in (None, "pretend:1", "cpu"):
        for inside in ("pretend:3", "cpu", None, "raises"):
            torch.set_default_device(default)
            before = state()
            with contextlib.suppress(KeyError), on_gpu(2):
                if inside == "raises":
                    with torch.device("pretend:0"):
                        raise KeyError
                torch.set_default_device(inside)
                torch.accelerator.set_device_index(1)
            if state() != before or before[2] != (default or "cpu"):
                found.append([default, inside])
    return found


def refused(device):
    ran = []

    def use():
        with on_gpu(device):
            ran.append(torch.ones(1))

    return {"error": placement_error(use), "ran": bool(ran), "after": current()}


def compiled_in_threads():
    """Where a compiled function makes a tensor, and what torch.compile takes for the default device afterwards."""
    function = torch.compile(lambda: torch.ones(3) + 1, backend="aot_eager", fullgraph=True)

    def first(wait):
        with on_gpu(1):
            wait()
            wait()
            return str(function().device)

    def second(wait):
        wait()
        with on_gpu(2):
            wait()
            return str(function().device)

    found = at_once([first], here=[second])
    return [*found, str(function().device), torch.utils._device.CURRENT_DEVICE]


def default_device_of_the_compiler():
    """What torch.compile takes for the default device, after blocks that end in the order that they began in."""

    def first(wait):
        with on_gpu(1):
            wait()
            wait()
        wait()

    def second(wait):
        wait()
        with on_gpu(2):
            wait()
            wait()

    at_once([first], here=[second])
    return torch.utils._device.CURRENT_DEVICE


def without_private_names():
    """Return what blocks do where PyTorch lacks `DeviceContext.prev_mode`, as 2.8 and 2.9 do."""

    def init(self, device):
        self.device = torch.device(device)

    def enter(self):
        self.old_device, _device.CURRENT_DEVICE = _device.CURRENT_DEVICE, self.device
        modes = [_device._pop_mode() for _ in range(_device._len_torch_function_stack())]
        for mode in [self, *reversed(modes)]:
            _device._push_mode(mode)

    _device.DeviceContext.__init__, _device.DeviceContext.__enter__ = init, enter
    found = {"before": state(), "inside": []}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for device in (2, "cpu", 1):
            with on_gpu(device):
                found["inside"].append([made(), torch.accelerator.current_device_index()])
        found["between"] = state()
        with on_gpu(3), on_gpu(1):
            found["nested"] = made()
            torch.set_default_device("cpu")
    return {**found, "warned": [str(one.message) for one in caught]}


def too_old(device):
    del torch.accelerator.device_index  # as before 2.8
    found = []

    def use():
        with on_gpu(device):
            found.append(made())

    return {"error": placement_error(use), "devices": found}


def given_device(wanted):
    with on_gpu(wanted) as device:
        pass
    return [str(device), str(torch.zeros(1).to(device).device)]
