"""Predictions of `fit` for eight models, beside the memory of a real step on the CPU, as PyTorch's profiler sees it.

A GPU's optimizers take all parameters at once and the CPU's do not, so the real ones are told to. Dropout is left
out: a GPU keeps a mask of bytes, the CPU one of floats, in attention besides all that the softmax returns.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

import gpu_magic
from tests.programs.runner import ELSEWHERE

if TYPE_CHECKING:
    from tests.programs.runner import Runner

if ELSEWHERE:
    import torch
    import torch._dynamo  # which the first optimizer imports: two seconds, once for all programs here
    from torch import nn
    from torch.profiler import ProfilerActivity, profile
    from torch.utils.checkpoint import checkpoint

    from tests.programs.reached import storage, tensors_of

    # One that is built for CUDA predicts in a forked process: there the pretend accelerator bars autograd.
    torch.version.cuda = None

if ELSEWHERE:

    def adam(model, kind=torch.optim.Adam, **options):
        return kind([p for p in model.parameters() if p.requires_grad], lr=1e-3, foreach=True, **options)


def cnn():
    def unit(a, b, stride=1):
        return [nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]

    layers = [*unit(3, 32), *unit(32, 64, 2), *unit(64, 64), *unit(64, 128, 2)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    # In another format oneDNN, on the CPU, converts each tensor to its own.
    model = nn.Sequential(*layers, nn.Linear(128, 10)).to(memory_format=torch.channels_last)
    images = torch.randn(16, 3, 64, 64).contiguous(memory_format=torch.channels_last)
    batch = images, torch.randint(10, (16,))
    return model, adam(model, torch.optim.SGD, momentum=0.9), batch, nn.CrossEntropyLoss()


if ELSEWHERE:

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.lstm = nn.Embedding(5000, 128), nn.LSTM(128, 256, 2, batch_first=True)
            self.head = nn.Linear(256, 64)

        def forward(self, x):
            return self.head(self.lstm(self.embed(x))[0])


def lstm():
    """Step by step, as without oneDNN: what cuDNN keeps of an LSTM has nothing to compare with on a CPU."""
    torch.backends.mkldnn.enabled = False
    model = Tagger()
    return model, adam(model), (torch.randint(5000, (128, 16)), torch.randint(64, (128, 16))), language_loss


if ELSEWHERE:

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


def transformer(*, checkpoints=False):
    model, batch = (
        Language(checkpoints=checkpoints),
        (torch.randint(4000, (4, 64)), torch.randint(4000, (4, 64))),
    )
    return model, adam(model, torch.optim.AdamW), batch, language_loss


def mixed_precision():
    layers = [nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 64)]
    model, batch = nn.Sequential(*layers), (torch.randn(8192, 64), torch.randn(8192, 64))
    return model, adam(model), batch, nn.MSELoss(), {"amp": True, "dtype": "bfloat16"}


def frozen():
    """With an optimizer that has no state."""
    model, _, batch, loss = transformer()
    for block in model.blocks[:3]:
        block.requires_grad_(False)
    model.embed.requires_grad_(False)
    return model, adam(model, torch.optim.SGD), batch, loss


def hugging_face():
    import transformers

    size = {"n_embd": 192, "n_layer": 4, "n_head": 4, "vocab_size": 3000, "n_positions": 128}
    dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**size, **dropout))
    x = torch.randint(3000, (8, 128))
    return model, adam(model, torch.optim.AdamW), {"input_ids": x, "labels": x.clone()}, None


def peak_of(step, *held):
    """Return the most bytes that are in use while a step runs, with those of what is there before it.

    It is the profiler's account of what PyTorch's CPU allocator hands out and takes back, added up.
    """
    before = {storage(one): one.untyped_storage().nbytes() for one in tensors_of(held)}
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
    return sum(before.values()) + most


def prediction(name):
    """Return the peak that is predicted for a model's step, and that of the real one, in bytes."""
    torch.manual_seed(0)
    model, optimizer, batch, loss, *more = MODELS[name]()
    options = more[0] if more else {}
    found = gpu_magic.fit(model, optimizer, batch, loss=loss, **options)

    def forget():
        for parameter in model.parameters():
            parameter.grad = None

    def step():
        """Make a step as most programs do."""
        forget()
        with torch.autocast("cpu", torch.bfloat16, enabled="amp" in options):
            value = loss(model(batch[0]), batch[1]) if loss else model(**batch).loss
        value.backward()
        del value
        optimizer.step()

    step()  # the optimizer has its state from then on
    forget()
    return {"predicted": found.peak, "real": peak_of(step, model, optimizer, batch)}


def forward_alone():
    """A forward has no gradients, and no optimizer's state."""
    layers = nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 64)
    model, x, kept = nn.Sequential(*layers), torch.randn(8192, 1024), []
    found = gpu_magic.fit(model, adam(model), x, eval=True)
    assert not found.parts["gradients"] + found.parts["optimizer state"]

    def step():
        with torch.no_grad():
            kept.append(model(x))

    return {"predicted": found.peak, "real": peak_of(step, model, x)}


def accumulation():
    """A function of the user's own that accumulates gradients."""
    model, optimizer, batch, loss, _ = mixed_precision()

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


MODELS = {one.__name__: one for one in (cnn, lstm, transformer, mixed_precision, frozen, hugging_face)}
MODELS["checkpointed"] = functools.partial(transformer, checkpoints=True)


@pytest.mark.timeout(180)  # real steps under PyTorch's profiler
@pytest.mark.parametrize(
    "name",
    [
        *("cnn", "mixed_precision"),
        *(
            pytest.param(one, marks=pytest.mark.nightly)
            for one in ("lstm", "transformer", "checkpointed", "frozen", "hugging_face")
        ),
    ],
)
def test_the_peak_is_that_of_a_real_step(run: Runner, name: str) -> None:
    is_close(run(prediction, name))


@pytest.mark.timeout(180)
def test_the_peak_of_a_function_that_accumulates(run: Runner) -> None:
    is_close(run(accumulation))


@pytest.mark.nightly
def test_the_peak_of_a_forward(run: Runner) -> None:
    is_close(run(forward_alone))


def is_close(found: dict[str, int]) -> None:
    assert found["real"] > 8 << 20  # so much that blocks of 512 bytes do not matter
    assert abs(found["predicted"] / found["real"] - 1) < 0.05, found
