"""Steps of PyTorch that `fit` predicts, and others that it cannot."""

import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import gc
import io
import logging
import os
import queue
import random
import signal
import sys
import threading
import time
import types
import warnings
import weakref

import numpy as np
import torch
import torch._dynamo
from torch import nn
from torch.utils.checkpoint import checkpoint

import gpu_magic
from gpu_magic.errors import FitError
from gpu_magic.testing import simulate
from tests.programs.fit_oracle import peak_of


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
compiled = torch.compile(model)
averaged = copy.deepcopy(model)
x, y = torch.randn(32, 64), torch.randint(8, (32,))
batch = {"x": x, "y": y}
count, losses, table = 0, [], np.zeros(10)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 4, shuffle=True)
held = {"lock": threading.Lock(), "model": model}
items = (one for one in [batch])


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


@torch.compile
def compiled_loss(batch):
    losses.append(len(batch))
    return loss_of(batch, compiled)


def with_compiled(batch):
    update(compiled_loss(batch))


def with_checkpoint(batch):
    out = batch["x"].requires_grad_()
    for layer in (model.first, model.norm, model.head):
        out = checkpoint(layer, out, use_reentrant=True)
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


def over_loader(x):
    for inputs, targets in loader:
        update(loss_of({"x": inputs, "y": targets + int(table.sum())}))


def by_bool(x):
    loss = model(x).sum()
    if loss > 0:
        update(loss)


def by_item(x):
    loss = model(x).sum()
    if loss.item() > 0:
        update(loss)


def by_shape(x):
    return x.nonzero()


def leaving(x):
    return model(x).detach().numpy()


def not_copied(x):
    return held["model"](x).sum().backward()


def wrong_width(x):
    return model(x[:, :3])


def exits(x):
    model(x)
    raise SystemExit(3)


def no_tensors(x):
    return len(x)


def look():
    """Return all that must stay as it is."""
    return {
        "weights": {name: (id(one), one.clone()) for name, one in model.state_dict(keep_vars=True).items()},
        "averaged": [one.clone() for one in averaged.parameters()],
        "gradients": [(id(p.grad), p.grad.clone()) for p in model.parameters()],
        "grad hooks": [p._post_accumulate_grad_hooks for p in model.parameters()],
        "training": [m.training for m in model.modules()],
        "state": [(id(p), {k: v.clone() for k, v in s.items()}) for p, s in optimizer.state.items()],
        "groups": [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups],
        "others": [scheduler.last_epoch, scaler.state_dict(), trainer.count, table.tolist()],
        "random": [torch.get_rng_state(), random.getstate(), repr(np.random.get_state())],  # noqa: NPY002
        "batch": [x.clone(), x.requires_grad, y.clone()],
        "variables": (
            count,
            list(losses),
            type(seen.get("output")).__name__,
            id(model),
            id(optimizer),
            id(model.first.weight),
        ),
        "closure": with_closure.__closure__[1].cell_contents,
        "modes": torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack(),
        "replaced": [
            torch.amp.autocast_mode.autocast.__init__,
            torch.nn.functional.scaled_dot_product_attention,
            nn.Module.to,
            torch.cuda.is_available,
        ],
        "settings": [torch.is_grad_enabled(), gc.isenabled(), torch.is_anomaly_enabled()],
        "handler": signal.getsignal(signal.SIGINT),
    }


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def start():
    loss_of(batch).backward()
    optimizer.step()
    model.train()


def changed_by(call):
    """Return how a call ends, and what it has changed."""
    start()
    before, found, ended = look(), None, ""
    try:
        found = call()
    except gpu_magic.FitError as error:
        ended = str(error)
    except KeyboardInterrupt:
        ended = "interrupted"
    after = look()
    changed = [name for name in before if not same(before[name], after[name])]
    return found, {"ended": ended, "changed": changed, "started": torch.cuda.is_initialized()}


def followed(name):
    found, told = changed_by(lambda: gpu_magic.fit(globals()[name], batch))
    return {**told, "parts": None if found is None else found.parts}


def refused(name):
    _, told = changed_by(lambda: gpu_magic.fit(globals()[name], x))
    return told


def model_alone():
    found, told = changed_by(lambda: gpu_magic.fit(model, optimizer, (x, y), loss=nn.CrossEntropyLoss()))
    return {**told, "parts": found.parts}


def starts_no_cuda():
    """Return whether the driver is asked for a GPU, as `is_available` does."""
    asked = []
    torch.cuda.is_available = lambda: bool(asked.append(1))
    gpu_magic.fit(with_cuda_calls, batch)
    return len(asked)


def interrupted_in(where):
    """Interrupt a prediction in the user's code, or in a hook that the backward calls."""

    def now(*_):
        os.kill(os.getpid(), signal.SIGINT)

    def step(batch):
        loss = loss_of(batch)
        if where == "forward":
            now()
        elif where == "backward":
            loss.register_hook(now)
        update(loss)

    return changed_by(lambda: gpu_magic.fit(step, batch))[1]


def interrupted_anywhere(times):
    """Interrupt predictions at moments that are spread over one; return what has changed."""
    gpu_magic.fit(with_closure, batch)
    began = time.monotonic()
    gpu_magic.fit(with_closure, batch)
    whole, changed = time.monotonic() - began, set()
    for turn in range(times):
        timer = threading.Timer(whole * turn / times, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            _, told = changed_by(lambda: (gpu_magic.fit(with_closure, batch), time.sleep(2 * whole)))
        except KeyboardInterrupt:  # after it
            told = {"changed": []}
        changed |= set(told["changed"])
    return sorted(changed)


def in_another_thread():
    """Return what another thread has of PyTorch while a step is followed."""
    found = queue.SimpleQueue()  # which cannot be copied

    def other():
        layer = nn.Linear(2, 2).to(torch.float64)
        found.put([type(layer.weight).__name__, str(layer.weight.dtype), torch.autocast("cuda").device])

    def step(x):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return model(x).sum().backward()

    gpu_magic.fit(step, x)
    return found.get()


def sleeping_is_interrupted():
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    try:
        gpu_magic.fit(lambda x: (model(x), time.sleep(60)), x)
    except KeyboardInterrupt:
        return time.monotonic() - began
    return None


def kept_alive(how):
    """Return what still lives of a step when the user has let go of it."""
    model, batch = nn.Linear(20, 20), torch.randn(8, 20)
    optimizer = torch.optim.Adam(model.parameters())
    calls = {
        "model": lambda: gpu_magic.fit(model, optimizer, batch),
        "function": lambda: gpu_magic.fit(lambda x: model(x).sum().backward(), batch),
        "error": lambda: gpu_magic.fit(lambda x: model(x)[:, "no"], batch),
    }
    kept = None
    try:
        calls[how]()
    except gpu_magic.FitError as error:
        kept = error.with_traceback(None)  # as whoever shows it keeps it
    living = {
        "weight": weakref.ref(model.weight),
        "batch": weakref.ref(batch),
        "optimizer": weakref.ref(optimizer),
    }
    model = optimizer = batch = calls = None
    gc.collect()
    return {"alive": [name for name, one in living.items() if one() is not None], "failed": kept is not None}


def network(width=1024):
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 64))
    return model, torch.optim.Adam(model.parameters(), foreach=True)


def pair(size, width=1024):
    return torch.randn(size, width), torch.randn(size, 64)


def parts():
    model, optimizer = network()
    found = gpu_magic.fit(model, optimizer, pair(4), loss=nn.MSELoss())
    real = sum(-(-p.untyped_storage().nbytes() // 512) * 512 for p in model.parameters())
    return {**found.parts, "all": found.peak, "real parameters": real}


def forward_alone():
    (model, optimizer), x = network(), torch.randn(8192, 1024)
    found, kept = gpu_magic.fit(model, optimizer, x, eval=True), []

    def step():
        with torch.no_grad():
            kept.append(model(x))

    hooked = gpu_magic.fit(trainer.model, x[:, :64], eval=True)  # a name in its hook leads to an optimizer
    return {
        "predicted": found.peak,
        "real": peak_of(step, model, x),
        "gradients": found.parts["gradients"],
        "state": hooked.parts["optimizer state"],
    }


def optimizers():
    """Return the state that is predicted of an optimizer without state, and with some; RAdam reads its steps."""
    found = []
    for kind in (torch.optim.Adam, torch.optim.RAdam):
        model = nn.Linear(64, 64)
        optimizer = kind(model.parameters())
        for _ in range(2):
            found.append(gpu_magic.fit(model, optimizer, x).parts["optimizer state"])
            model(x).sum().backward()
            optimizer.step()
    return found


def attention_with_dropout():
    """The layer's attention is fused: no part grows with the square of the words."""
    layer = nn.TransformerEncoderLayer(64, 4, 64, dropout=0.1, batch_first=True)
    return [gpu_magic.fit(layer, torch.randn(1, words, 64)).parts["activations"] for words in (1024, 4096)]


def other_sizes():
    model, optimizer = network()
    given = gpu_magic.fit(model, optimizer, pair(8), loss=nn.MSELoss(), batch_size=512)
    made = gpu_magic.fit(model, optimizer, pair(512), loss=nn.MSELoss())
    halves = [gpu_magic.fit(model, pair(8), loss=nn.MSELoss(), dtype=kind).parts["parameters"] for kind in
              (torch.float32, "bfloat16")]  # fmt: skip
    return {"given": given.parts, "made": made.parts, "halves": halves}


def cast_in_the_step():
    """Return the bytes of a model's parameters with another dtype: as an option, and by the step itself."""
    (model, _), (x, _) = network(), pair(8)

    def step(x):
        model.to("cuda").bfloat16()(x.to(torch.bfloat16)).sum().backward()

    found = gpu_magic.fit(model, x, dtype="bfloat16"), gpu_magic.fit(step, x)
    return {"parameters": [one.parts["parameters"] for one in found], "now": str(model[0].weight.dtype)}


def largest_batch():
    """Predict at the largest batch and beyond it, on a simulated GPU with little memory left."""
    model, optimizer = network()
    with simulate("1xA100-80GB") as machine:
        machine.gpus[0].run("train.py", "maria", (79 << 30) - (650 << 20))
        found = gpu_magic.fit(model, optimizer, pair(64), loss=nn.MSELoss())
        size = found.largest_batch
        fits = [
            gpu_magic.fit(model, optimizer, pair(64), loss=nn.MSELoss(), batch_size=size + more).fits[
                "cuda:0"
            ]
            for more in (0, 1)
        ]
    return {"size": size, "fits": fits, "verdict": found.verdict}


def one_by_one(way):
    model, x = nn.Linear(4, 2), torch.ones(8, 4)

    def step(batch):
        if way == "list":
            return model(batch).tolist()
        rows = batch if way == "items" else (batch[index] for index in range(len(batch)))
        return sum(model(row).sum() for row in rows)

    with simulate("1xA100-80GB"):
        found = gpu_magic.fit(step, x)
    return {"largest": found.largest_batch, "verdict": found.verdict}


def quiet():
    """Predict a step that PyTorch logs an error of, and one with `float`; return what was written of it."""
    model, printed, said = nn.Linear(4, 2), io.StringIO(), io.StringIO()

    def step(batch):
        print(float(model(batch).sum()))

    handler = logging.StreamHandler(said)
    logging.getLogger("torch").addHandler(handler)
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stderr(said):
        warnings.simplefilter("always")
        try:
            gpu_magic.fit(model, torch.ones(8, 3))
        except FitError as error:
            text = str(error)
        with contextlib.redirect_stdout(printed):
            gpu_magic.fit(step, torch.ones(8, 4))
    logging.getLogger("torch").removeHandler(handler)
    warned = [str(one.message) for one in caught]
    return {
        "said": [said.getvalue(), *warned],
        "error": text,
        "printed": sorted({*printed.getvalue().split()}),
    }


def without(name):
    """Take a private name away from PyTorch, and return what a step says then."""
    module, _, path = name.partition(":")
    owner = __import__(module, fromlist=["_"])
    *inner, last = path.split(".")
    for one in inner:
        owner = getattr(owner, one)
    if hasattr(owner, last):
        delattr(owner, last)
    else:  # of objects
        setattr(owner, last, property(fset=lambda *_: None))
    try:
        return str(gpu_magic.fit(model, optimizer, (x, y), loss=nn.CrossEntropyLoss()).peak > 0)
    except gpu_magic.FitError as error:
        return str(error)


def bad_input(case):
    of_keras = type("Model", (nn.Linear,), {"__module__": "keras.models"})(64, 8)
    other, closing = nn.Linear(64, 8), torch.optim.LBFGS(model.parameters())
    calls = {
        "nothing": lambda: gpu_magic.fit(x),
        "no batch": lambda: gpu_magic.fit(model, optimizer),
        "keras": lambda: gpu_magic.fit(of_keras, x),
        "two models": lambda: gpu_magic.fit(model, other, x),
        "a number": lambda: gpu_magic.fit(model, 3, x),
        "another's optimizer": lambda: gpu_magic.fit(other, optimizer, x),
        "a dtype": lambda: gpu_magic.fit(model, x, dtype="bf16"),
        "amp": lambda: gpu_magic.fit(model, x, amp=True, dtype="float32"),
        "a loss's class": lambda: gpu_magic.fit(model, x, loss=nn.MSELoss),
        "options": lambda: gpu_magic.fit(with_closure, batch, amp=True),
        "no size": lambda: gpu_magic.fit(model, (x, y[:5]), loss=nn.MSELoss(), batch_size=4),
        "decides": lambda: gpu_magic.fit(model, torch.optim.ASGD(model.parameters()), x),
        "a closure": lambda: gpu_magic.fit(model, closing, x),
        "not trained": lambda: gpu_magic.fit(nn.Flatten(), x),
        "lazy": lambda: gpu_magic.fit(nn.LazyLinear(4), x),
        "parallel": lambda: gpu_magic.fit(nn.DataParallel(model), x),
        "empty loader": lambda: gpu_magic.fit(model, torch.utils.data.DataLoader([], 4)),
        "loader of a stream": lambda: gpu_magic.fit(model, torch.utils.data.DataLoader(Stream(), 4)),
    }
    try:
        return str(calls[case]())
    except gpu_magic.FitError as error:
        return str(error)


@dataclasses.dataclass
class Pair:
    x: torch.Tensor
    y: torch.Tensor
    itself: object = None


def batches():
    """Return, for batches of several kinds, the peaks of 32 items and of 4,096, and the sizes that were found."""
    mode = enum.Enum("Mode", "TRAIN")
    pair = Pair(x, y)
    pair.itself = [pair]
    ordered = collections.OrderedDict(batch)
    steps = {
        "a dict": (lambda given: loss_of(given).backward(), batch),
        "an ordered dict": (lambda given: loss_of(given).backward(), ordered),
        "a user's dict": (lambda given: loss_of(given).backward(), collections.UserDict(batch)),
        "an object": (lambda given: loss_of(vars(given)).backward(), pair),
        "an enum beside it": (lambda given, _: loss_of(given).backward(), batch, mode.TRAIN),
        "a model beside it": (lambda given, network: loss_of(given, network).backward(), batch, model),
    }
    found = {}
    for name, (step, *given) in steps.items():
        small, large = (gpu_magic.fit(step, *given, batch_size=size) for size in (32, 4096))
        found[name] = [small.peak, large.peak, large.batch_size, small.parts["parameters"]]
    return found


def rows_of_a_dataset():
    """Return the bytes of batches of the same size: a tensor of its own, rows of others, and columns."""
    data, wide = torch.randn(4096, 64), torch.randn(32, 512)
    return [
        gpu_magic.fit(model, optimizer, (given, y)).parts["batch"]
        for given in (x, data[:32], wide[:, 64:128])
    ]


def without_frameworks():
    """Return what is told where a framework is not what it is called."""
    sys.modules["jax"] = types.ModuleType("jax")
    peak = gpu_magic.fit(lambda given: loss_of(given).backward(), batch).peak
    there = sys.modules["torch"]
    sys.modules["torch"] = None
    try:
        return [peak > 0, _error(lambda: gpu_magic.fit(loss_of, batch))]
    finally:
        sys.modules["torch"] = there
        del sys.modules["jax"]


def _error(call):
    try:
        return str(call())
    except gpu_magic.FitError as error:
        return str(error)
