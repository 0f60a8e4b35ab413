"""Predictions of memory: `%gpu_fit` compared with the memory of a real step."""

from __future__ import annotations

from typing import Any

from tests.gpu.claim import Seen, claim
from tests.gpu.programs.common import alone

WHERE = "fit/torch_step.py"
MIB = 1 << 20


def _beside(model: Any, optimizer: Any, batch: tuple[Any, Any], loss: Any) -> Seen:
    """Compare a prediction, made while all is on the CPU, with the peak of the second step on the GPU."""
    import torch

    import gpu_magic
    from gpu_magic.fit.fit import _WORKSPACES

    predicted = gpu_magic.fit(model, optimizer, batch, loss=loss).peak
    inputs, targets = (one.to("cuda") for one in batch)
    model.to("cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(model(inputs), targets).backward()
        optimizer.step()

    step()
    optimizer.zero_grad(set_to_none=True)
    torch.cuda.reset_peak_memory_stats()
    step()
    peak = torch.cuda.max_memory_allocated()
    more = (peak - predicted) / MIB
    what = f"{predicted // MIB} MiB predicted, {more:.0f} MiB more used"
    return Seen(-0.01 * peak / MIB <= more <= _WORKSPACES / MIB, what, {"MiB more": more})


@claim(
    "`%gpu_fit` predicts the peak of a training step of a CNN. The real peak, by "
    "`torch.cuda.max_memory_allocated`, is at most 0.2 GiB higher. The difference is workspaces, for which the "
    "verdict has these 0.2 GiB.",
    WHERE,
    "PyTorch for CUDA",
)
def cnn() -> Seen:
    alone()
    import torch
    from torch import nn

    def unit(a: int, b: int, stride: int = 1) -> list[Any]:
        return [nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]

    layers = [*unit(3, 64), *unit(64, 64), *unit(64, 128, 2), *unit(128, 128), *unit(128, 256, 2)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    batch = torch.randn(32, 3, 128, 128), torch.randint(10, (32,))
    return _beside(model, optimizer, batch, nn.CrossEntropyLoss())


@claim(
    "`%gpu_fit` predicts the peak of a training step of a transformer with AdamW. The real peak, by "
    "`torch.cuda.max_memory_allocated`, is at most 0.2 GiB higher. The difference is workspaces, for which the "
    "verdict has these 0.2 GiB.",
    WHERE,
    "PyTorch for CUDA",
)
def transformer() -> Seen:
    alone()
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.1, batch_first=True)
    model = nn.Sequential(nn.Embedding(8192, 512), nn.TransformerEncoder(layer, 6), nn.Linear(512, 8192))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randint(8192, (8, 512)), torch.randint(8192, (8, 512))

    def loss(outputs: Any, targets: Any) -> Any:
        return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    return _beside(model, optimizer, batch, loss)


@claim(
    "Predicting a step's memory does not start CUDA.",
    WHERE,
    "PyTorch for CUDA",
)
def starts_nothing() -> Seen:
    alone()
    import torch

    import gpu_magic
    from tests.gpu.programs.cuda import answer_now

    model = torch.nn.Linear(64, 64)
    peak = gpu_magic.fit(model, torch.optim.Adam(model.parameters()), torch.randn(8, 64)).peak
    answer = answer_now()
    return Seen(peak > 0 and answer in ("not loaded", "not started"), f"CUDA is {answer}")
