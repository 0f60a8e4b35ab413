"""Predictions of `fit` for what lies on an accelerator already, the tests' pretend one."""

import pretend_native
import torch
import torch._dynamo
from torch import nn

from gpu_magic.fit.torch_step import TorchStep

assert pretend_native


def there():
    """Return what is predicted for a step that is on the accelerator, and for the same one on the CPU."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)).to("pretend:1")
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(16, 64)

    def step(x):
        optimizer.zero_grad()
        model(x.to("pretend:1")).sum().backward()
        optimizer.step()

    step(x)
    optimizer.zero_grad()
    called = TorchStep(step, (x,), {})
    state = [value for one in optimizer.state.values() for name, value in one.items()]
    held = sum(one.nbytes for one in (*model.parameters(), *state) if one.device.type != "cpu")
    on_gpu = called.peak()
    fresh = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))
    optimizer, model = torch.optim.Adam(fresh.parameters()), fresh
    return {"same": on_gpu == TorchStep(step, (x,), {}).peak(), "present": called.present, "held": held}
