"""Functions as people write them, which `fit` follows; and others, which it can't."""

import contextlib
import copy
import csv
import functools
import io
import logging
import os
import pathlib
import sys
import tempfile

import IPython.display
import numpy as np
import torch
import torch._dynamo
import tqdm.auto
from IPython.display import DisplayHandle, clear_output
from torch import nn
from torch.utils.checkpoint import checkpoint
from tqdm import trange

import gpu_magic

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))
optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
with contextlib.suppress(UserWarning):
    scaler = torch.amp.GradScaler("cpu")
compiled = torch.compile(model)
averaged = copy.deepcopy(model)
x, y = torch.randn(32, 64), torch.randint(8, (32,))
batch = {"x": x, "y": y}
losses, seen = [], {}
table = np.zeros(10)
items = (one for one in [batch])
loader = torch.utils.data.DataLoader([(a, b) for a, b in zip(x, y, strict=True)], 4)


def loss_of(batch, network=None):
    return nn.functional.cross_entropy((network or model)(batch["x"]), batch["y"])


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
    loss = loss_of(batch)
    update(loss)
    losses.append(loss.item())
    seen["mean"] = sum(losses) / len(losses) + float(loss)
    print(f"loss {loss.item():.3f} {loss:.2f} {loss}")


def closure():
    count, network = 0, model

    def step(batch, times=2):
        nonlocal count
        for _ in range(times):
            count += 1
            update(loss_of(batch, network))
        losses.append(count)

    return step


with_closure = closure()


def with_scheduler(batch):
    update(loss_of(batch))
    scheduler.step()


def with_clipping(batch):
    optimizer.zero_grad()
    loss_of(batch).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    losses.append(norm.item())
    optimizer.step()


def with_cuda_calls(batch):
    device = torch.device("cuda:0")
    batch = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
    extra = torch.zeros(4, device="cuda").cuda()
    update(loss_of(batch, model.to(device)) + extra.sum())
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    losses.append(torch.cuda.max_memory_allocated())


def with_compiled(batch):
    update(loss_of(batch, compiled))


def with_checkpoint_reentrant(batch):
    out = batch["x"].requires_grad_()
    for layer in model:
        out = checkpoint(layer, out, use_reentrant=True)
    update(nn.functional.cross_entropy(out, batch["y"]))


class Trainer:
    count = 0

    def __init__(self):
        self.model, self.optimizer = model, optimizer

    def step(self, batch):
        self.count += 1
        update(loss_of(batch, self.model))


trainer = Trainer()
with_class = trainer.step


def with_ema(batch):
    update(loss_of(batch))
    with torch.no_grad():
        for kept, new in zip(averaged.parameters(), model.parameters(), strict=True):
            kept.mul_(0.9).add_(new, alpha=0.1)


with_partial = functools.partial(with_closure, times=1)


def with_numpy(batch):
    update(loss_of(batch) + torch.from_numpy(table).sum())


log = open(os.devnull, "w")  # noqa: PTH123, SIM115 - it is what is tested
written = tempfile.TemporaryFile("w+")  # noqa: SIM115
named = tempfile.NamedTemporaryFile("w+")  # noqa: SIM115
read = open(csv.__file__)  # noqa: PTH123, SIM115
in_memory = io.StringIO("before")
rows = csv.writer(written)
logger = logging.getLogger("fitting")
logger.addHandler(logging.StreamHandler())
logger.setLevel(logging.INFO)
bar = tqdm.tqdm(total=3, file=log)
handle = DisplayHandle()


def with_files(batch):
    update(loss_of(batch))
    written.write("SHOWN")
    written.flush()
    rows.writerow(["SHOWN"])
    in_memory.write("SHOWN")
    named.write("SHOWN")
    print("SHOWN", file=written)
    sys.stdout.write("SHOWN")
    print("SHOWN", file=sys.stderr)


def with_loggers(batch):
    loss = loss_of(batch)
    update(loss)
    logger.info("SHOWN %s", loss.item())
    logging.warning("SHOWN")  # noqa: LOG015
    logging.getLogger("fitting").error("SHOWN")


def with_bars(batch):
    for _ in tqdm.tqdm(range(2), desc="SHOWN"):
        update(loss_of(batch))
    with tqdm.auto.tqdm(total=2, desc="SHOWN") as progress:
        for _ in trange(2):
            progress.update(1)
            progress.set_postfix(loss=loss_of(batch).item())
    bar.update(1)
    bar.set_description("SHOWN")
    tqdm.tqdm.write("SHOWN")


def with_display(batch):
    update(loss_of(batch))
    IPython.display.display("SHOWN")
    clear_output(wait=True)
    handle.display("SHOWN")


def reading(x):
    """Read from a file that is open."""
    return x, read.readline()


def by_bool(x):
    loss = model(x).sum()
    if loss > 0:
        update(loss)


def by_item(x):
    loss = model(x).sum()
    if loss.item() > 0:
        update(loss)


def as_index(x):
    """Slice by a number."""
    return x[: x.sum().item()]


def by_shape(x):
    """Find what is not zero."""
    return x.nonzero()


def leaving(x):
    """Leave PyTorch."""
    return x.numpy()


def advancing(x):
    return model(next(items)["x"])


def saving(x):
    torch.save(x, "model.pt")


def writing(x):
    open("log.txt", "a").write("x")  # noqa: PTH123, SIM115 - it is what is tested


def loading(x):
    for part, _ in loader:
        model(part)


def look():
    tensors = [*model.state_dict().values(), *averaged.state_dict().values(), x, y]
    return {
        "tensors": [one.clone() for one in tensors],
        "grads": [p.grad for p in model.parameters()],
        "requires": [x.requires_grad, *(p.requires_grad for p in model.parameters())],
        "state": len(optimizer.state),
        "rate": [optimizer.param_groups[0]["lr"], scheduler.last_epoch, optimizer.param_groups[0]["foreach"]],
        "lists": [
            list(losses),
            dict(seen),
            table.tolist(),
            trainer.count,
            trainer.__dict__.keys() ^ {"model", "optimizer"},
        ],
        "scaler": scaler.state_dict(),
        "files": [
            os.fstat(written.fileno()).st_size,
            pathlib.Path(named.name).stat().st_size,
            in_memory.getvalue(),
            read.tell(),
            bar.n,
        ],
    }


def followed(name):
    before = look()
    found = gpu_magic.fit(globals()[name], batch)
    after = look()
    same = all(map(torch.equal, before.pop("tensors"), after.pop("tensors")))
    return {
        "parts": found.parts,
        "changed": [*(key for key in before if before[key] != after[key]), *([] if same else ["tensors"])],
    }


def shown(name):
    """Return what changed, and what the process writes while a function is followed."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(1), os.dup(2)
        try:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
            found = followed(name)
            for one in (sys.stdout, sys.stderr, written, named):
                one.flush()
        finally:
            for number, old in zip((1, 2), kept, strict=True):
                os.dup2(old, number)
        file.seek(0)
        return {**found, "shown": file.read().decode(), "files": look()["files"]}


def why_not(name):
    try:
        said = str(gpu_magic.fit(globals()[name], x))
    except gpu_magic.FitError as error:
        said = str(error)
    written = [name for name in ("model.pt", "log.txt") if pathlib.Path(name).exists()]
    return {"said": said, "written": written}
