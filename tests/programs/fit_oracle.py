"""The memory of a real step on the CPU, as PyTorch's profiler sees it: what predictions are compared with."""

import torch
import torch._dynamo  # which the first optimizer imports: two seconds, once for all programs here
from torch.profiler import ProfilerActivity, profile


def storages(*values):
    """Return the bytes of all storages that some values lead to, each counted once."""
    found = {}

    def look(value):
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            found[storage._cdata] = storage.nbytes()
            look(value.grad if value.is_leaf else None)
        elif isinstance(value, torch.nn.Module):
            look([*value.parameters(), *value.buffers()])
        elif isinstance(value, torch.optim.Optimizer):
            look([list(value.state.values()), value.param_groups])
        elif isinstance(value, dict) or hasattr(value, "items"):
            look(list(value.values()))
        elif isinstance(value, (list, tuple)):
            for one in value:
                look(one)

    look(values)
    return sum(found.values())


def peak_of(step, *held):
    """Return the most bytes that are in use while a step runs, with those of what is there before it.

    It is the profiler's account of what PyTorch's CPU allocator hands out and takes back, added up.
    """
    before = storages(*held)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    events = [
        (event.start_ns(), event.nbytes())
        for event in profiled.profiler.kineto_results.events()
        if event.name() == "[memory]"
    ]
    in_use = most = 0
    for _, nbytes in sorted(events, key=lambda event: event[0]):
        in_use += nbytes
        most = max(most, in_use)
    return before + most


def real_peak(model, optimizer, batch, loss, *, autocast=None):
    """Return the peak of a step as most programs make it, once the optimizer has its state."""

    def step():
        for parameter in model.parameters():
            parameter.grad = None
        with torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None):
            value = loss()
        value.backward()
        del value
        if optimizer is not None:
            optimizer.step()

    step()
    for parameter in model.parameters():
        parameter.grad = None
    return peak_of(step, model, optimizer, batch)
