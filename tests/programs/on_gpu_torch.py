"""`on_gpu` with PyTorch."""

import asyncio
import contextlib
import gc
import io
import threading
import warnings
import weakref

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
    found = {}
    for name in ("/GPU:3", "/device:GPU:3", "pretend:3", torch.device("pretend:3"), 3, "3", "GPU:3"):
        with on_gpu(name):
            found[repr(name)] = made()
    return found


def shuffled_loader():
    found = {}
    data = TensorDataset(torch.arange(8.0), torch.arange(8))
    try:
        with torch.device("pretend:1"):
            list(DataLoader(data, shuffle=True))
    except RuntimeError as error:
        found["with torch.device"] = str(error)
    with on_gpu(1):
        found["batches"] = len(list(DataLoader(data, batch_size=4, shuffle=True)))
    return found


def seeded():
    return torch.Generator().manual_seed(1)


def seeded_loader():
    data = TensorDataset(torch.arange(8.0), torch.arange(8))
    with on_gpu(1):
        first, again = (list(DataLoader(data, 8, shuffle=True, generator=seeded())) for _ in range(2))
        return {"first": first[0][0].tolist(), "again": again[0][0].tolist()}


def loader_with_a_worker():
    pairs = [(i, float(i)) for i in range(8)]
    with on_gpu(1):
        return str(next(iter(DataLoader(pairs, 8, num_workers=1)))[0].device)


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
    found = {}
    with on_gpu(1):
        for name in ("Adam", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Rprop"):
            net = torch.nn.Linear(2, 2)
            optimizer = getattr(torch.optim, name)(net.parameters())
            net(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            states = optimizer.state.values()
            found[name] = sorted({str(one["step"].device) for one in states})
        average = torch.optim.swa_utils.AveragedModel(net)
    return {**found, "average": str(average.n_averaged.device)}


def compiled(*devices):
    found = []
    function = torch.compile(lambda x: x * 2 + torch.ones(3), backend="eager", fullgraph=True)
    for device in devices:
        with on_gpu(device):
            found.append(str(function(torch.zeros(3)).device))
    return [*found, str(function(torch.zeros(3)).device)]


def default_device_set_inside(before, inside):
    torch.set_default_device(before)
    found = {"before": state()}
    with on_gpu(2):
        torch.set_default_device(inside)
        torch.accelerator.set_device_index(1)
    return {**found, "after": state()}


def device_context_that_raises(before):
    torch.set_default_device(before)
    found = {"before": state()}
    try:
        with on_gpu(2), torch.device("pretend:0"):
            raise KeyError  # noqa: TRY301 - that is the point
    except KeyError:
        return {**found, "after": state()}


def refused(device):
    ran = []

    def use():
        with on_gpu(device):
            ran.append(torch.ones(1))

    return {"error": placement_error(use), "ran": bool(ran), "after": current()}


def decorated_function():
    @on_gpu(2)
    def make(n, *, plus=0):
        """Make it."""
        return str(torch.ones(n).device), n + plus

    device, number = make(1, plus=2)
    return {
        "device": device,
        "number": number,
        "name": make.__name__,
        "doc": make.__doc__,
        "after": current(),
    }


def block_within_itself():
    block = on_gpu(1)
    with block:
        with block:
            inner = made()
        outer = made()
    return {"inner": inner, "outer": outer, "after": current()}


def block_in_two_threads():
    block, seen = on_gpu(1), {}

    def other():
        seen["before"] = made()
        with block:
            seen["inside"] = made()
        seen["after"] = made()

    with block:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        seen["here"] = made()
    return {**seen, "at the end": current()}


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


def numbers():
    yield 1


async def later():
    await asyncio.sleep(0)


class Caller:
    async def __call__(self):
        return torch.ones(1).device


def decorated(name):
    functions = {"generator": numbers, "coroutine": later, "asynchronous object": Caller(), "class": Caller}
    return placement_error(on_gpu(1), functions.get(name, name))


def wrong_devices():
    found = {repr(wrong): placement_error(on_gpu, wrong) for wrong in (b"1", {0, 1}, True, print, None)}
    return {**found, "torch": placement_error(on_gpu, torch)}


def wrong_frameworks():
    return placement_error(on_gpu, 0, only=3)


def entered_in_a_task():
    block = on_gpu(2)

    async def enter():
        block.__enter__()

    asyncio.run(enter())
    inside = made()
    block.__exit__(None, None, None)
    return {"inside": inside, "after": current()}


def block_that_is_kept():
    def make(y):
        return on_gpu(1), on_gpu(1)(lambda: None)

    globals()["x"] = torch.ones(10)  # a notebook's variable
    blocks = [on_gpu(1), make(globals()["x"])]
    seen = weakref.ref(globals()["x"])
    del globals()["x"]
    gc.collect()
    return {"blocks": len(blocks), "is gone": seen() is None}


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


def or_cpu(device):
    found, said = [], io.StringIO()
    with contextlib.redirect_stdout(said), on_gpu(device, or_cpu=True):
        found.append(made())
    return {"made on": found, "said": said.getvalue()}


def given_device(wanted):
    with on_gpu(wanted) as device:
        pass
    return [str(device), str(torch.zeros(1).to(device).device)]


def innermost_of_the_same_again():
    """Return where a block within itself, with another one between, says that it runs, and then that other one."""
    from gpu_magic.placement.scope import innermost

    with on_gpu(1), on_gpu(2):
        with on_gpu(1):
            inner = str(innermost())
        return [inner, str(innermost())]
