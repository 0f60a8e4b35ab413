"""What `fit` must not touch: the model, its optimizer, the notebook's variables, random numbers."""

import gc
import random
import weakref

import numpy as np
import torch
import torch._dynamo
from torch import nn

import gpu_magic


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(32, 64), nn.BatchNorm1d(64), nn.Linear(64, 4)

    def forward(self, x):
        x = self.first(x)
        return self.head(nn.functional.dropout(self.norm(x).relu(), 0.5, self.training))


def train(batch):
    global steps  # noqa: PLW0603 - as notebooks do
    steps += 1
    loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
    history.append(loss.item())
    optimizer.zero_grad()
    return loss


def decide(batch):
    loss = train(batch)
    if loss.item() > 1:
        optimizer.step()


def interrupted(batch):
    train(batch).backward()
    raise KeyboardInterrupt


steps, history = 0, []
model = Net()
optimizer = torch.optim.AdamW(model.parameters())
batch = torch.randn(16, 32), torch.randint(4, (16,))
wrong = torch.randn(16, 8), batch[1]


def look():
    """Return all that must stay as it is."""
    return {
        "weights": {
            name: (id(value), value.clone()) for name, value in model.state_dict(keep_vars=True).items()
        },
        "gradients": [(id(p.grad), p.grad.clone()) for p in model.parameters()],
        "requires": [p.requires_grad for p in model.parameters()],
        "hooks": [len(m._forward_hooks) + len(m._backward_hooks) for m in model.modules()],
        "grad hooks": [p._post_accumulate_grad_hooks for p in model.parameters()],
        "training": [m.training for m in model.modules()],
        "state": [(id(p), {k: v.clone() for k, v in s.items()}) for p, s in optimizer.state.items()],
        "groups": [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups],
        "torch": torch.get_rng_state(),
        "random": random.getstate(),
        "numpy": repr(np.random.get_state()),  # noqa: NPY002 - it is the one that others draw from
        "grad mode": torch.is_grad_enabled(),
        "batch": [one.clone() for one in batch],
        "variables": (steps, list(history), id(model), id(optimizer), id(model.first.weight)),
        "garbage": gc.isenabled(),
        "modes": torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack(),
    }


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def touched(how):
    train(batch).backward()
    optimizer.step()
    model.train()
    before = look()
    calls = {
        "model": lambda: gpu_magic.fit(model, optimizer, batch, nn.CrossEntropyLoss()),
        "function": lambda: gpu_magic.fit(train, batch),
        "error": lambda: gpu_magic.fit(model, optimizer, wrong, nn.CrossEntropyLoss()),
        "data": lambda: gpu_magic.fit(decide, batch),
        "interrupt": lambda: gpu_magic.fit(interrupted, batch),
    }
    ended = ""
    try:
        calls[how]()
    except gpu_magic.FitError as error:
        ended = str(error)
    except KeyboardInterrupt:
        ended = "interrupted"
    after = look()
    changed = [name for name in before if not same(before[name], after[name])]
    return {"ended": ended, "changed": changed, "started": torch.cuda.is_initialized()}


def again(model, x):
    try:
        model(x)[:, "no"]
    except TypeError:
        raise ValueError from None


def stop(out):
    out.sum().backward()
    raise KeyboardInterrupt


def kept_alive(how):
    """Return what still lives of a step when the user has let go of it."""
    model, batch = nn.Linear(20, 20), torch.randn(8, 20)
    optimizer = torch.optim.Adam(model.parameters())
    calls = {
        "model": lambda: gpu_magic.fit(model, batch),
        "training": lambda: gpu_magic.fit(model, optimizer, batch),
        "eval": lambda: gpu_magic.fit(model, batch, eval=True),
        "function": lambda: gpu_magic.fit(lambda x: model(x).sum().backward(), batch),
        "error": lambda: gpu_magic.fit(model, optimizer, batch[:, :3]),
        "function's error": lambda: gpu_magic.fit(lambda x: model(x)[:, "no"], batch),
        "error of an error": lambda: gpu_magic.fit(lambda x: again(model, x), batch),
        "interrupt": lambda: gpu_magic.fit(lambda x: stop(model(x)), batch),
    }
    kept = None
    try:
        calls[how]()
    except (gpu_magic.FitError, KeyboardInterrupt) as error:
        kept = error.with_traceback(None)  # as whoever shows it keeps it
    living = {
        "weight": weakref.ref(model.weight),
        "batch": weakref.ref(batch),
        "optimizer": weakref.ref(optimizer),
    }
    model = optimizer = batch = calls = None
    gc.collect()
    alive = [name for name, there in living.items() if there() is not None]
    return {"alive": alive, "failed": kept is not None}
