"""Predictions of `fit` for ten models, beside a real step on the CPU: see `fit_oracle`.

A GPU's optimizers take all parameters at once and the CPU's do not, so the real ones are told to. Dropout is left
out: a GPU keeps a mask of bytes, the CPU one of floats, in attention besides all that the softmax returns.
"""

import torch
import torch._dynamo
import transformers
from torch import nn
from torch.utils.checkpoint import checkpoint

import gpu_magic
from tests.programs.fit_oracle import peak_of, real_peak

MODELS = {}


def model_of(function):
    MODELS[function.__name__] = function
    return function


def adam(model, kind=torch.optim.Adam, **options):
    return kind([p for p in model.parameters() if p.requires_grad], lr=1e-3, foreach=True, **options)


@model_of
def linear():
    model = nn.Sequential(
        nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 256)
    )
    return model, adam(model), (torch.randn(1024, 512), torch.randn(1024, 256)), nn.MSELoss()


@model_of
def cnn():
    def unit(a, b, stride=1):
        return [nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]

    layers = [
        *unit(3, 32),
        *unit(32, 64, 2),
        *unit(64, 64),
        *unit(64, 128, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ]
    # In another format oneDNN, on the CPU, converts each tensor to its own.
    model = nn.Sequential(*layers, nn.Linear(128, 10)).to(memory_format=torch.channels_last)
    images = torch.randn(16, 3, 64, 64).contiguous(memory_format=torch.channels_last)
    batch = images, torch.randint(10, (16,))
    return model, adam(model, torch.optim.SGD, momentum=0.9), batch, nn.CrossEntropyLoss()


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(5000, 128), nn.LSTM(128, 256, 2, batch_first=True)
        self.head = nn.Linear(256, 64)

    def forward(self, x):
        return self.head(self.lstm(self.embed(x))[0])


@model_of
def lstm():
    """Step by step, as without oneDNN: what cuDNN keeps of an LSTM has nothing to compare with on a CPU."""
    torch.backends.mkldnn.enabled = False
    model = Tagger()
    batch = torch.randint(5000, (128, 16)), torch.randint(64, (128, 16))
    return (
        model,
        adam(model),
        batch,
        lambda out, y: nn.functional.cross_entropy(out.flatten(0, 1), y.flatten()),
    )


class Language(nn.Module):
    """A transformer with tied weights, whose layers can be checkpointed."""

    def __init__(self, *, checkpoints=False):
        super().__init__()
        self.embed = nn.Embedding(4000, 256)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True) for _ in range(4)
        )
        self.head = nn.Linear(256, 4000, bias=False)
        self.head.weight = self.embed.weight
        self.checkpoints = checkpoints

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpoints else block(x)
        return self.head(x)


def language_loss(out, y):
    return nn.functional.cross_entropy(out.flatten(0, 1), y.flatten())


@model_of
def transformer():
    model = Language()
    return model, adam(model, torch.optim.AdamW), words(), language_loss


@model_of
def checkpointed():
    model = Language(checkpoints=True)
    return model, adam(model, torch.optim.AdamW), words(), language_loss


def words(count=8):
    return torch.randint(4000, (count, 128)), torch.randint(4000, (count, 128))


@model_of
def mixed_precision():
    layers = [nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 64)]
    model, batch = nn.Sequential(*layers), (torch.randn(8192, 64), torch.randn(8192, 64))
    return model, adam(model), batch, nn.MSELoss(), {"amp": True, "dtype": "bfloat16"}


@model_of
def frozen():
    model, _, batch, loss = transformer()
    for block in model.blocks[:3]:
        block.requires_grad_(False)
    model.embed.requires_grad_(False)
    return model, adam(model), batch, loss


@model_of
def sgd():
    model, _, batch, loss = linear()
    return model, adam(model, torch.optim.SGD), batch, loss


@model_of
def hugging_face():
    config = transformers.GPT2Config(
        n_embd=192,
        n_layer=4,
        n_head=4,
        vocab_size=3000,
        n_positions=128,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    model = transformers.GPT2LMHeadModel(config)
    x = torch.randint(3000, (8, 128))
    return model, adam(model, torch.optim.AdamW), {"input_ids": x, "labels": x.clone()}, None


def prediction(name):
    """Return the peak that is predicted for a model's step, and that of the real one, in bytes."""
    torch.manual_seed(0)
    model, optimizer, batch, loss, *more = MODELS[name]()
    options = more[0] if more else {}
    found = gpu_magic.fit(model, optimizer, batch, loss=loss, **options)

    def value():
        if loss is None:
            return model(**batch).loss
        return loss(model(batch[0]), batch[1])

    autocast = torch.bfloat16 if options.get("amp") else None
    return {"predicted": found.peak, "real": real_peak(model, optimizer, batch, value, autocast=autocast)}


def accumulation():
    """The tenth: a function of the user's own that accumulates gradients."""
    model, optimizer, batch, loss = transformer()

    def train_step(batch, parts=4):
        optimizer.zero_grad()
        for x, y in zip(*(whole.chunk(parts) for whole in batch), strict=True):
            (loss(model(x), y) / parts).backward()
        optimizer.step()

    found = gpu_magic.fit(train_step, batch)

    def steps():  # the second one begins with gradients, which the profiler has seen
        train_step(batch)
        train_step(batch)

    train_step(batch)
    optimizer.zero_grad()
    return {"predicted": found.peak, "real": peak_of(steps, model, optimizer, batch)}
