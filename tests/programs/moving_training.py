"""`to_gpu` in the middle of training: a transformer and a convolutional network, on the pretend accelerator."""

import gc

import pretend_native
import torch
import torch._dynamo  # which the first optimizer imports: two seconds, once for all programs here
from torch import nn

from gpu_magic import to_gpu
from tests.programs.errors import placement_error


def allocated(index):
    gc.collect()
    return torch.accelerator.memory_allocated(f"pretend:{index}")


class Norm(nn.Module):
    # PyTorch's own is taken apart otherwise on accelerators, and then no bit is the same.
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * self.weight


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([Norm(width), Norm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) / (w // self.heads) ** 0.5
        mask = torch.ones(t, t, device=x.device).tril() == 0
        scores = scores.masked_fill(mask, float("-inf"))
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(self.norms[1](x))


class Transformer(nn.Module):
    def __init__(self, words=50, width=16, heads=2, layers=3):
        super().__init__()
        self.embed, self.position = nn.Embedding(words, width), nn.Parameter(torch.randn(8, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight  # tied
        self.register_buffer("scale", torch.tensor(2.0))
        self.table = torch.arange(3.0)  # a plain attribute, which .to() forgets

    def forward(self, x):
        x = self.embed(x) * self.scale + self.position[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()

        def unit(a, b, stride=1):
            return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())

        self.stem = unit(3, 8)
        self.one, self.two, self.skip = unit(8, 16, 2), unit(16, 16), nn.Conv2d(8, 16, 1, 2)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        x = self.stem(x)
        x = self.two(self.one(x)) + self.skip(x)
        return self.head(x.mean((2, 3)))


def make(kind, seed=0):
    torch.manual_seed(seed)
    if kind == "transformer":
        model = Transformer()
        batch = {"x": torch.randint(50, (4, 8)), "y": torch.randint(50, (4, 8))}
    else:
        model = ConvNet().to(memory_format=torch.channels_last)
        batch = {"x": torch.randn(4, 3, 16, 16), "y": torch.randint(5, (4,))}
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if p.dim() < 2], "lr": 1e-2},
        ]
    )
    return model, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9), batch


def step(model, optimizer, scheduler, batch):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(batch["x"]).flatten(0, -2), batch["y"].flatten())
    loss.backward()
    optimizer.step()
    scheduler.step()
    return loss.item()


def training(kind, like_cuda):
    pretend_native.be_like_cuda(like_cuda)
    stayed, moved = make(kind), make(kind)
    losses = {"stayed": [step(*stayed)], "moved": [step(*moved)]}
    model, optimizer, scheduler, batch = moved
    parameters = [id(p) for p in model.parameters()]
    grads = [p.grad.clone() for p in model.parameters()]
    strides = [p.stride() for p in model.parameters()]
    moves = []
    for device in (0, 2, "cpu"):
        to_gpu([model, optimizer, batch], device)
        tensors = [*model.parameters(), *model.buffers(), *batch.values()]
        states = optimizer.state.values()
        moves.append(
            {
                "to": sorted({str(one.device) for one in tensors}),
                "averages": sorted({str(one["exp_avg"].device) for one in states}),
                "steps": sorted({str(one["step"].device) for one in states}),
                "gradients are equal": all(
                    torch.equal(p.grad.cpu(), g) for p, g in zip(model.parameters(), grads, strict=True)
                ),
                "scheduler has its optimizer": scheduler.optimizer is optimizer,
                "strides are equal": [p.stride() for p in model.parameters()] == strides,
            }
        )
        for _ in range(2):
            losses["stayed"].append(step(*stayed))
            losses["moved"].append(step(*moved))
        grads = [p.grad.cpu().clone() for p in model.parameters()]
    mine = {id(p) for p in model.parameters()}
    found = {
        "moves": moves,
        "losses": losses,
        "parameters are the same objects": [id(p) for p in model.parameters()] == parameters,
        "optimizer has them": {id(p) for group in optimizer.param_groups for p in group["params"]} == mine,
        "left behind": [allocated(0), allocated(2)],
    }
    if kind == "transformer":
        found["weights are tied"] = model.head.weight is model.embed.weight
        found["plain attribute"] = str(model.table.device)
    return found


def failures():
    """Let the allocation of each number fail in turn, until there is none of that number."""
    model, optimizer, scheduler, batch = make("transformer")
    step(model, optimizer, scheduler, batch)
    gc.collect()
    gc.freeze()  # garbage is only looked for among what is made from here on
    x = torch.arange(20.0).view(4, 5)
    pair, state = (x, x[1]), {"batch": batch, "row": x[2], "leaf": torch.ones(2, requires_grad=True)}
    things = [model, optimizer, state, pair]

    def look():
        tensors = [
            *model.parameters(),
            *model.buffers(),
            model.table,
            *batch.values(),
            x,
            *pair,
            state["row"],
        ]
        tensors += [p.grad for p in model.parameters()]
        tensors += [value for one in optimizer.state.values() for value in one.values()]
        return [(id(t), str(t.device), t.untyped_storage()._cdata, t.stride(), t.tolist()) for t in tensors]

    before = look()
    errors, changed, count = set(), [], 0
    while True:
        count += 1
        pretend_native.fail_after(count)
        error = placement_error(to_gpu, things, 1)
        if error is None:
            break
        errors.add(error.partition(" after")[0])
        if look() != before or allocated(1) or things != [model, optimizer, state, pair]:
            changed.append(count)
    pretend_native.fail_after(0)
    return {
        "errors": sorted(errors),
        "changed something": changed,
        "allocations": count,
        "tuple that was given": str(pair[0].device),
        "after the one that succeeded": [str(things[3][0].device), str(model.position.device)],
    }
