"""What else `fit` says of PyTorch's steps: parts, other batches, and bad input."""

import torch
import torch._dynamo
from torch import nn
from torch.distributed.fsdp import fully_shard
from transformers.optimization import Adafactor

import gpu_magic
from gpu_magic.frameworks.prediction import TrainingStep
from gpu_magic.frameworks.pytorch.fake_step import FakeStep
from gpu_magic.testing import simulate
from tests.programs.fitting_oracle import peak_of, real_peak


def network(width=1024):
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 64))
    return model, torch.optim.Adam(model.parameters(), foreach=True)


def batch_of(size, width=1024):
    return torch.randn(size, width), torch.randn(size, 64)


def parts():
    model, optimizer = network()
    found = gpu_magic.fit(model, optimizer, batch_of(4), nn.MSELoss())
    real = sum(-(-p.untyped_storage().nbytes() // 512) * 512 for p in model.parameters())
    return {**found.parts, "peak": found.peak, "sum": sum(found.parts.values()), "real parameters": real}


def forward_alone():
    model, _ = network()
    x = torch.randn(8192, 1024)
    found = gpu_magic.fit(model, x, eval=True)

    def step():
        with torch.no_grad():
            return model(x)

    kept = []
    return {
        "predicted": found.peak,
        "real": peak_of(lambda: kept.append(step()), model, x),
        "gradients": found.gradients,
        "optimizer_state": found.optimizer_state,
    }


def largest_batch():
    """Take away memory of a simulated GPU, until a batch of some hundreds fits there."""
    model, optimizer = network()
    with simulate("1xA100-80GB") as machine:
        machine.gpus[0].run("train.py", "maria", (79 << 30) - (650 << 20))
        found = gpu_magic.fit(model, optimizer, batch_of(64), nn.MSELoss())
        (room,) = found._prediction.rooms
        size = found.largest_batch
        with_more = gpu_magic.fit(model, optimizer, batch_of(64), nn.MSELoss(), batch_size=size + 1)
        at_it = gpu_magic.fit(model, optimizer, batch_of(64), nn.MSELoss(), batch_size=size)

    def real(size):
        x, y = batch_of(size)
        return real_peak(model, optimizer, (x, y), lambda: nn.functional.mse_loss(model(x), y))

    return {
        "at the largest": at_it.fits["cuda:0"],
        "with one more": with_more.fits["cuda:0"],
        "available": room.available - room.context,
        "real": real(size),
        "real with more": real(int(size * 1.03)),
    }


def largest_beside_optimizer():
    """Of a model whose optimizer takes the most, up to batches that are much larger."""
    model = nn.Linear(20_000, 20_000, device="meta")
    optimizer, x = torch.optim.Adam(model.parameters(), foreach=True), torch.randn(64, 20_000)
    with simulate("1xA100-80GB"):
        found = gpu_magic.fit(model, optimizer, x)
        size = found.largest_batch
        fits = [gpu_magic.fit(model, optimizer, x, batch_size=size + more).fits["cuda:0"] for more in (0, 1)]
    return {"fits": fits, "verdict": found.verdict, "size": size}


def sizes_beside_optimizer():
    """The peaks of other batches as the search for the largest one has them, and as one asks for them."""
    model = nn.Linear(1000, 1000)
    step = TrainingStep(model, torch.optim.Adam(model.parameters()), torch.randn(8, 1000))
    predictor = FakeStep(step)
    predictor.predict()
    sizes = (8, 500, 1500, 50_000)
    return {str(size): [predictor.peak(size), FakeStep(step).predict(size).peak] for size in sizes}


def largest_of_a_small_model():
    model = nn.Linear(4, 2)
    with simulate("1xA100-80GB"):
        found = gpu_magic.fit(model, torch.optim.Adam(model.parameters()), torch.randn(8, 4))
        return {"size": found.largest_batch, "text": repr(found), "html": found._repr_html_()}


def arrays_by_name(x):
    return {"query": x, "key": x.numpy(), "value": x.numpy()}


def another_size():
    model, optimizer = network()
    resized = gpu_magic.fit(model, optimizer, batch_of(8), nn.MSELoss(), batch_size=512)
    return {
        "resized": resized.parts,
        "made so": gpu_magic.fit(model, optimizer, batch_of(512), nn.MSELoss()).parts,
    }


def cast():
    model, optimizer = network()
    found = {
        name: gpu_magic.fit(model, optimizer, batch_of(8), nn.MSELoss(), dtype=name).parameters
        for name in ("float32", "bfloat16")
    }
    assert next(model.parameters()).dtype is torch.float32
    return found


class Broken(torch.utils.data.Dataset):
    def __init__(self, error=ValueError):
        self.error = error

    def __len__(self):
        return 4

    def __getitem__(self, index):
        raise self.error("no such file")


def loader_of(dataset):
    return torch.utils.data.DataLoader(dataset, 2)


def leaves(error):
    torch.zeros(4).sum()
    raise error


def process_group():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)


def distributed(model):
    process_group()
    return nn.parallel.DistributedDataParallel(model)


def sharded(model):
    process_group()
    return fully_shard(model)


def with_anomalies():
    """A step with anomaly detection, which is on for all, or in the function; and whether it stays on."""
    model, optimizer = network(64)
    x, y = batch_of(8, 64)

    def step(x, y):
        with torch.autograd.detect_anomaly():
            nn.functional.mse_loss(model(x), y).backward()
        with torch.autograd.set_detect_anomaly(True):
            nn.functional.mse_loss(model(x), y).backward()

    plain = gpu_magic.fit(model, optimizer, (x, y), nn.MSELoss()).peak
    within = gpu_magic.fit(step, x, y).peak
    with torch.autograd.set_detect_anomaly(True):
        found = gpu_magic.fit(model, optimizer, (x, y), nn.MSELoss()).peak
        stays = torch.is_anomaly_enabled()
    return {"same": found == plain, "within": within, "stays": [stays, torch.is_anomaly_enabled()]}


def moved():
    """A function that moves a model, and computes nothing, still takes memory."""
    model, _ = network(64)
    return gpu_magic.fit(lambda: model.to("cuda")).parts


class Loss(nn.Module):
    """As one writes it, with an error in it."""

    def forward(self, output, target):
        return nn.functional.mse_loss(output, target[:, :3])


def dtypes():
    model, optimizer = network()
    kinds = (torch.bfloat16, "bfloat16", torch.float32)
    found = [gpu_magic.fit(model, optimizer, batch_of(8), nn.MSELoss(), dtype=kind).parts for kind in kinds]
    mixed = [gpu_magic.fit(model, batch_of(8), amp=True, dtype=kind).parts for kind in kinds[:2]]
    return {"same": found[0] == found[1], "other": found[0] == found[2], "mixed": mixed[0] == mixed[1]}


class OfArrays(nn.Module):
    """A model that makes tensors of what it is called with."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x):
        return self.layer(torch.as_tensor(x))


def arrays_that_a_model_takes():
    model, x = OfArrays(), torch.randn(4, 8)
    return [gpu_magic.fit(model, given).parameters for given in (x.numpy(), x)]


def refused(given):
    model, optimizer = network(8)
    x, y = batch_of(4, 8)
    calls = {
        "nothing": lambda: gpu_magic.fit(x),
        "two models": lambda: gpu_magic.fit(model, nn.Linear(2, 2), x),
        "a number": lambda: gpu_magic.fit(model, optimizer, 3),
        "no batch": lambda: gpu_magic.fit(model, optimizer),
        "another's optimizer": lambda: gpu_magic.fit(network(8)[0], optimizer, x),
        "a dtype": lambda: gpu_magic.fit(model, optimizer, x, dtype="int8"),
        "a torch.dtype": lambda: gpu_magic.fit(model, optimizer, x, dtype=torch.int8),
        "half a name": lambda: gpu_magic.fit(model, optimizer, x, dtype="bf16"),
        "no dtype": lambda: gpu_magic.fit(model, optimizer, x, dtype=[16]),
        "amp in float32": lambda: gpu_magic.fit(model, optimizer, x, amp=True, dtype=torch.float32),
        "a loss's name": lambda: gpu_magic.fit(model, optimizer, x, loss="mse"),
        "a loss's class": lambda: gpu_magic.fit(model, optimizer, (x, y), loss=nn.CrossEntropyLoss),
        "an array": lambda: gpu_magic.fit(model, optimizer, x.numpy()),
        "arrays": lambda: gpu_magic.fit(model, optimizer, (x.numpy(), y.numpy()), loss=nn.MSELoss()),
        "targets in an array": lambda: gpu_magic.fit(model, optimizer, (x, y.numpy()), loss=nn.MSELoss()),
        "arrays by name": lambda: gpu_magic.fit(nn.MultiheadAttention(8, 2), arrays_by_name(x)),
        "a width": lambda: gpu_magic.fit(model, optimizer, x[:, :5]),
        "a width of targets": lambda: gpu_magic.fit(model, optimizer, (x, y[:, :3]), loss=nn.MSELoss()),
        "a width in a loss": lambda: gpu_magic.fit(model, optimizer, (x, y), loss=Loss()),
        "words": lambda: gpu_magic.fit(nn.Embedding(8, 8), x),
        "another width": lambda: gpu_magic.fit(nn.LayerNorm(3), x),
        "a size": lambda: gpu_magic.fit(model, optimizer, x, batch_size=0),
        "a word for a size": lambda: gpu_magic.fit(model, optimizer, x, batch_size="many"),
        "no common size": lambda: gpu_magic.fit(model, optimizer, (x, y[:2]), batch_size=8),
        "eval with an optimizer": lambda: gpu_magic.fit(model, optimizer, x, eval=True),
        "a lazy module": lambda: gpu_magic.fit(nn.LazyLinear(4), x),
        "nothing to train": lambda: gpu_magic.fit(model.requires_grad_(False), x),
        "options of a function": lambda: gpu_magic.fit(model.forward, x, amp=True),
        "no targets": lambda: gpu_magic.fit(model, x, loss=nn.CrossEntropyLoss()),
        "a closure": lambda: gpu_magic.fit(model, torch.optim.LBFGS(model.parameters()), x),
        "numbers": lambda: gpu_magic.fit(model, torch.optim.Adafactor(model.parameters()), x),
        "a model of transformers' optimizer": lambda: gpu_magic.fit(model, Adafactor(model.parameters()), x),
        "a broken dataset": lambda: gpu_magic.fit(model, optimizer, loader_of(Broken())),
        "a dataset that exits": lambda: gpu_magic.fit(model, optimizer, loader_of(Broken(SystemExit))),
        "an empty dataset": lambda: gpu_magic.fit(model, optimizer, loader_of([])),
        "print": lambda: gpu_magic.fit(print, x),
        "no tensors": lambda: gpu_magic.fit(lambda: len(model)),
        "exit": lambda: gpu_magic.fit(leaves, SystemExit(3)),
        "generator's exit": lambda: gpu_magic.fit(leaves, GeneratorExit()),
        "DataParallel": lambda: gpu_magic.fit(nn.DataParallel(model), optimizer, x),
        "DistributedDataParallel": lambda: gpu_magic.fit(distributed(model), optimizer, x),
        "in a function": lambda: gpu_magic.fit(nn.DataParallel(model).forward, x),
        "fully_shard": lambda: gpu_magic.fit(sharded(model), x),
    }
    try:
        return str(calls[given]())
    except gpu_magic.FitError as error:
        return str(error)
