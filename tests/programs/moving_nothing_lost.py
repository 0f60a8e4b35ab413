"""`to_gpu` with PyTorch, where things were found to be lost, or left behind without a word."""

import gc
import os
import signal
import weakref

import numpy as np
import torch
import torch._dynamo  # which the first optimizer imports: two seconds, once for all programs here
from torch import nn

import gpu_magic
from gpu_magic import devices_of, to_cpu, to_gpu
from gpu_magic.move.move import carry_out
from gpu_magic.move.names import Names
from gpu_magic.move.plan import Plan
from gpu_magic.selection.target import LogicalDevice
from tests.programs.errors import placement_error


def allocated(index):
    gc.collect()
    return torch.accelerator.memory_allocated(f"pretend:{index}")


def plan_for(names, text):
    """Return a plan to move variables to the first device, as a magic makes it."""
    plan = Plan(LogicalDevice("gpu", 0))
    for name, value in names.read(text).items():
        plan.add(name, value)
    return plan


class Odd:
    @property
    def t(self):
        return self._t


def property_without_a_setter():
    odd, y, model = Odd(), torch.ones(2), nn.Linear(2, 2)
    odd._t = torch.ones(3)
    space = {"odd": odd, "y": y, "model": model, "box": [y]}
    names = Names(space, ())
    return {
        "error": placement_error(carry_out, plan_for(names, "model box y odd.t"), names),
        "devices": [str(model.weight.device), str(odd.t.device)],
        "are the same": [space["y"] is y, space["box"][0] is y],
    }


class Interrupting:
    _t = torch.ones(3)

    @property
    def t(self):
        return self._t

    @t.setter
    def t(self, value):
        os.kill(os.getpid(), signal.SIGINT)
        self._t = value


class Refusing(Odd):
    @Odd.t.setter
    def t(self, value):
        self._t = value
        if value.device.type != "cpu":
            raise ValueError("not there")


def setter_that_raises():
    odd, x = Refusing(), torch.ones(2)
    odd.t = before = torch.ones(3)
    space = {"odd": odd, "x": x}
    names = Names(space, ())
    return {
        "error": placement_error(carry_out, plan_for(names, "x odd.t"), names),
        "are the same": [odd.t is before, space["x"] is x],
        "allocated": allocated(0),
    }


def interrupt():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has it ignored
    space = {"odd": Interrupting(), "model": nn.Linear(2, 2), "x": torch.ones(2)}
    names = Names(space, ())
    plan = plan_for(names, "model odd.t x")
    found = {"was interrupted": False}
    try:
        carry_out(plan, names)
    except KeyboardInterrupt:
        found["was interrupted"] = True
        devices = space["model"].weight.device, space["odd"].t.device, space["x"].device
        found["devices"] = [str(device) for device in devices]
        found["allocated"] = allocated(0)
    handler = signal.getsignal(signal.SIGINT)
    return {**found, "handler is as before": handler is signal.default_int_handler}


class Pipeline:
    __module__ = "torch"  # another package's

    def __init__(self):
        self.model, self.d = nn.Linear(2, 2), {"x": torch.ones(2)}

    def to(self, device):
        self.model.to(device)
        for name in self.d:
            self.d[name] = self.d[name].to(device)
        return self


class Bad(Pipeline):
    __module__ = "torch"

    def to(self, device):
        raise ValueError("no way")


class OwnPipeline(Pipeline):  # the user's own is looked into, so that what it holds stays tied
    pass


def objects_that_move_themselves():
    one = Pipeline()
    found = {
        "error": placement_error(to_gpu, [one, Bad()], 0),
        "after the error": [str(one.model.weight.device), str(one.d["x"].device), allocated(0)],
    }
    moved = to_gpu([one], 0)[0]
    return {
        **found,
        "is the same": moved is one,
        "devices": [str(one.model.weight.device), str(one.d["x"].device)],
    }


def own_object_that_moves_itself():
    mine, x = OwnPipeline(), torch.ones(3)
    mine.d["x"] = x
    mine, x = to_gpu((mine, x), 1)
    return {"is tied": mine.d["x"] is x, "device": str(mine.model.weight.device)}


def view_of_another_dtype():
    p = nn.Parameter(torch.arange(8.0).view(4, 2))
    c = torch.view_as_complex(p)
    p, moved = to_gpu((p, c), 0)
    return {
        "dtype": str(moved.dtype),
        "view": torch.view_as_real(moved.detach()).tolist(),
        "parameter": p.tolist(),
    }


def optimizer_of_a_plain_tensor():
    x = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.Adam([x])
    x.sum().backward()
    optimizer.step()
    x.requires_grad_(False)
    x, optimizer = to_gpu((x, optimizer), 0)
    return {
        "is its parameter": optimizer.param_groups[0]["params"][0] is x,
        "has a state": x in optimizer.state,
        "devices": [str(optimizer.state[x]["exp_avg"].device), str(x.grad.device)],
        "bytes": devices_of(x)["pretend:0"],
    }


def scripted_module():
    return placement_error(to_gpu, torch.jit.script(nn.Linear(2, 2)), 0)


def resized_storage():
    gone = torch.ones(100)
    gone.untyped_storage().resize_(0)
    return {"error": placement_error(to_gpu, gone, 0), "bytes": gone.untyped_storage().nbytes()}


def numpy_layouts():
    fixed = np.ones(2)
    fixed.flags.writeable = False
    return {
        "reversed": to_gpu(np.arange(3)[::-1], 0, numpy="torch").tolist(),
        "big-endian": str(to_gpu(np.ones(2, ">f4"), 0, numpy="torch").dtype),
        "read-only": str(to_gpu(fixed, 0, numpy="torch").device),
    }


def masked_array():
    masked = {"a": np.ma.array([1.0, 2.0], mask=[0, 1]), "t": torch.ones(1)}
    return type(to_gpu(masked, 0, numpy="torch")["a"]).__name__


def numpy_types():
    return {
        "longdouble": placement_error(to_gpu, np.ones(2, np.longdouble), 0, numpy="torch"),
        "text": placement_error(to_gpu, np.array(["a"]), 0, numpy="torch"),
    }


class Log:
    pass


log = Log()


class Slow:
    __module__ = "torch"

    def __init__(self):
        self.x = torch.ones(1)

    def to(self, device):  # stands for a copy that takes its time
        log.n = 5
        log.items.append("new")
        log.d["k"] = 2
        self.x = self.x.to(device)


def written_meanwhile():
    slow = Slow()
    log.n, log.items, log.d = 0, [torch.ones(2)], {"k": 1, "t": torch.ones(2)}
    to_gpu([log, slow], 0)
    return {
        "attribute": log.n,
        "list": log.items[1:],
        "dict": log.d["k"],
        "devices": [str(log.items[0].device), str(log.d["t"].device)],
    }


def class_that_is_gone():
    def look():
        class Net:
            def __init__(self):
                self.x = torch.ones(2)

        net = Net()
        to_gpu(net, 0)
        devices_of(net)
        return weakref.ref(Net)

    kind = look()
    gc.collect()
    return kind() is None


def memory_that_is_not_wanted_any_more():
    gc.disable()  # it goes at once
    x = torch.ones(1 << 20, device="pretend:1")
    x = to_cpu(x)
    return {"allocated": torch.accelerator.memory_allocated(1), "device": str(x.device)}


def model_and_optimizer():
    model = nn.Linear(2, 2)
    return placement_error(to_gpu, model, torch.optim.SGD(model.parameters()))


def nothing_given():
    return placement_error(to_gpu, None)


def name_in_quotes():
    return placement_error(to_gpu, "model")


def destinations():
    model = nn.Linear(2, 2)
    found = {
        "torch.device": str(to_gpu(model, torch.device("pretend:1")).weight.device),
        "NumPy's number": str(to_gpu(model, np.int64(3)).weight.device),
        "kept on the last": gpu_magic.gpu_free().after["pretend:3"],
    }
    with gpu_magic.on_gpu(2):
        found["that of the block"] = str(to_gpu(model).weight.device)
    return {**found, "the first": str(to_gpu(model).weight.device)}
