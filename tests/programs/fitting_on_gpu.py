"""Predictions of `fit` for what lies on an accelerator already, the tests' pretend one."""

import pretend_native
import torch
import torch._dynamo
from torch import nn

from gpu_magic.frameworks.prediction import FunctionCall, TrainingStep
from gpu_magic.frameworks.pytorch.fake_step import FakeStep

assert pretend_native


def there():
    """Return what is predicted for a model that is on the accelerator, and for the same one on the CPU."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)).to("pretend:1")
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(16, 64)

    def step(x):
        optimizer.zero_grad()
        model(x.to("pretend:1")).sum().backward()
        optimizer.step()

    step(x)
    optimizer.zero_grad()
    trained = FakeStep(TrainingStep(model, optimizer, x.to("pretend:1"))).predict()
    called = FakeStep(FunctionCall(step, (x,))).predict()
    state = [value for one in optimizer.state.values() for name, value in one.items() if name != "step"]
    held = sum(tensor.nbytes for tensor in (*model.parameters(), *state))
    fresh = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))
    on_cpu = FakeStep(TrainingStep(fresh, torch.optim.Adam(fresh.parameters()), x)).predict()
    return {
        "same": trained.parts == on_cpu.parts,
        "present": {str(device): size - held for device, size in called.present.items()},
        "with the batch": {str(device): size - held - x.nbytes for device, size in trained.present.items()},
        "of the cpu": on_cpu.present,
        "devices": [str(next(model.parameters()).device), str(model(x.to("pretend:1")).device)],
    }
