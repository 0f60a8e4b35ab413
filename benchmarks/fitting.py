"""`%gpu_fit`: the seconds that a prediction takes, and by how much the process grows; in fresh processes."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import timing
from benchmarks.report import Row, Table

__all__ = ["run"]

ROUNDS = 5
SECONDS, GROWTH = 1.5, 300 << 20
NAMES = {"cnn": "a convolutional network", "transformer": "a transformer of 12 layers", "gpt2": "GPT-2"}


def run() -> list[Table]:
    variables = {"GPU_MAGIC_SIMULATE": "1xA100-80GB", "GPU_MAGIC_CLAIMS": "off"}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in NAMES}
    for name in timing.turns(list(NAMES), ROUNDS):
        found[name].append(timing.ask(f"benchmarks.fitting:fit:{name}", variables))
    seconds = {name: median(each[0] for each in found[name]) for name in NAMES}
    growth = {name: median(each[1] for each in found[name]) for name in NAMES}
    return [
        Table(
            "%gpu_fit model optimizer batch, in a fresh process",
            [Row(NAMES[name], seconds[name], "1.5 s", seconds[name] < SECONDS) for name in NAMES],
            "",
        ),
        Table(
            "Memory by which the process grows",
            [Row(NAMES[name], growth[name], "300 MB", growth[name] < GROWTH) for name in NAMES],
            "",
            _mebibytes,
        ),
    ]


def _mebibytes(size: float) -> str:
    return f"{size / (1 << 20):.0f} MiB"


# What follows runs in a worker.


def fit(name: str) -> tuple[float, int]:
    """Return the seconds that the first prediction takes, and by how many bytes the process grows."""
    import torch

    import gpu_magic

    model, batch = _made(name)
    optimizer = torch.optim.AdamW(model.parameters())
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew: proc(5)
    before, began = _peak(), time.perf_counter()
    gpu_magic.fit(model, optimizer, batch)
    return time.perf_counter() - began, _peak() - before


def _made(name: str) -> tuple[Any, Any]:
    import torch
    from torch import nn

    if name == "cnn":
        channels = [3, 64, 64, 128, 128, 256, 256, 512, 512]
        layers: list[Any] = []
        for place, (a, b) in enumerate(pairwise(channels)):
            layers += [nn.Conv2d(a, b, 3, 1 + place % 2, 1), nn.BatchNorm2d(b), nn.ReLU()]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)]
        return nn.Sequential(*layers), torch.randn(32, 3, 224, 224)
    if name == "transformer":
        layer = nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True)
        return nn.TransformerEncoder(layer, 12), torch.randn(8, 512, 768)
    from transformers import GPT2Config, GPT2LMHeadModel

    words = torch.randint(50257, (8, 512))
    return GPT2LMHeadModel(GPT2Config()), {"input_ids": words, "labels": words}


def _peak() -> int:
    """Return the most bytes that the process has had."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
