"""A model that is trained, in the ways in which notebooks train; see test_steps.py."""

import copy
import functools
import threading

import numpy as np
import torch
import torch._dynamo  # which the first optimizer imports: two seconds, once for all
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(64, 256), nn.BatchNorm1d(256), nn.Linear(256, 8)

    def forward(self, x):
        x = self.first(x)
        return self.head(nn.functional.dropout(self.norm(x).relu(), 0.5, self.training))


model = Net()
optimizer = torch.optim.AdamW(model.parameters())
seen = {}
model.head.register_forward_hook(lambda module, given, output: seen.update(output=output.detach()))
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
scaler = torch.amp.GradScaler("cpu")
averaged = copy.deepcopy(model)
x, y = torch.randn(32, 64), torch.randint(8, (32,))
batch = {"x": x, "y": y}
count, losses, table = 0, [], np.zeros(10)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 4, shuffle=True)
held = {"lock": threading.Lock(), "model": model}


def loss_of(batch, network=None):
    return nn.functional.cross_entropy((model if network is None else network)(batch["x"]), batch["y"])


def update(loss):
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def with_autocast(batch):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_of(batch)
    update(loss)


def with_scaler(batch):
    with torch.autocast(device_type="cuda"):
        loss = loss_of(batch)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()


def with_logging(batch):
    global count  # noqa: PLW0603 - as notebooks do
    count += 1
    loss = loss_of(batch)
    update(loss)
    losses.append(loss.item() / count)
    print(f"loss {loss.item():.3f} {loss:.2f} {sum(losses) / len(losses)}")


def closure():
    steps, network = 0, model

    def step(batch, times=2):
        nonlocal steps
        for _ in range(times):
            steps += 1
            update(loss_of(batch, network))
        losses.append(steps)

    return step


with_closure = closure()
with_partial = functools.partial(with_closure, times=1)


def with_scheduler(batch):
    update(loss_of(batch))
    scheduler.step()


def with_cuda_calls(batch):
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cuda")
    batch = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
    extra = torch.zeros(4, device="cuda").cuda() + torch.randn(4, device="cuda")
    update(loss_of(batch, model.to(device)) + extra.sum().to("cpu"))
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.manual_seed(0)
    losses.append(torch.cuda.max_memory_allocated())


def compiled_loss(batch):
    losses.append(len(batch))
    return loss_of(batch, compiled)


def compile_both():
    """Compile the model and the function: what that imports, most programs here do without."""
    global compiled, compiled_loss
    compiled, compiled_loss = (
        torch.compile(model, backend="eager"),
        torch.compile(compiled_loss, backend="eager"),
    )


def with_compiled(batch):
    update(compiled_loss(batch))


def with_checkpoint(batch):
    out = batch["x"].requires_grad_()
    for layer in (model.first, lambda hidden: model.norm(hidden) * hidden.mean().item(), model.head):
        out = checkpoint(layer, out, use_reentrant=True)  # in the backward it reads the number again
    update(nn.functional.cross_entropy(out, batch["y"]))


class Trainer:
    def __init__(self):
        self.model, self.optimizer, self.count = model, optimizer, 0

    def step(self, batch):
        self.count += 1
        update(loss_of(batch, self.model))


trainer = Trainer()
with_class = trainer.step


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield x[0]


class Dataset:  # not PyTorch's: it is copied as any object is
    def __init__(self):
        self.model = model


own_dataset = Dataset()


def with_own_dataset(batch):
    update(loss_of(batch, own_dataset.model))


@torch.enable_grad()
def with_decorator(batch):
    update(loss_of(batch))
    with torch.no_grad():
        for kept, new in zip(averaged.parameters(), model.parameters(), strict=True):
            kept.mul_(0.9).add_(new, alpha=0.1)


def network(width=1024):
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 64))
    return model, torch.optim.Adam(model.parameters(), foreach=True)


def pair(size, width=1024):
    return torch.randn(size, width), torch.randn(size, 64)
