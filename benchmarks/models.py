"""PyTorch's models: the scope of `%%on_gpu`, `to_gpu` beside `module.to`, and what `%gpu_fit` takes."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Table, ask, steady
from tests.native import pretend_path

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 10_000  # parameter tensors
BARE, SCOPE = "with torch.device(...)", "gpu_magic's scope"
THEIRS, OURS = "module.to(device)", "gpu_magic.to_gpu(module)"


def run() -> list[Table]:
    with TemporaryDirectory() as folder:
        has_cuda = ask("benchmarks.models:cuda")
        extra = {} if has_cuda else {"PYTHONPATH": pretend_path(Path(folder))}
        names = {THEIRS: "theirs", OURS: "ours"}
        moves = steady(
            {name: f"benchmarks.models:move:{who}" for name, who in names.items()}, extra, rounds=4
        )
    scopes = steady({BARE: "benchmarks.models:scope:theirs", SCOPE: "benchmarks.models:scope:ours"})
    scope = Table("Entering and leaving the scope of a device")
    for name, value in scopes.items():
        scope.add(name, value, "at most twice" * (name == SCOPE), holds=value <= 2 * scopes[BARE])
    move = Table(f"{COUNT} parameters to {'CUDA' if has_cuda else 'a pretend accelerator'} and back")
    for name, value in moves.items():
        move.add(name, value, "at most 1.2 x" * (name == OURS), holds=value <= 1.2 * moves[THEIRS])
    return [scope, move, _fits()]


def _fits() -> Table:
    table = Table("gpu_magic.fit(model, optimizer, batch), in a fresh process")
    variables = {"GPU_MAGIC_SIMULATE": "1xA100-80GB", "GPU_MAGIC_CLAIMS": "off"}
    for model, name in (("transformer", "a transformer of 12 layers"), ("gpt2", "GPT-2")):
        value = median(ask(f"benchmarks.models:fit:{model}", variables) for _ in range(5))
        table.add(name, value, "at most 2 s", holds=value <= 2)
    return table


# What follows runs in a worker.


def cuda() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def scope(whose: str) -> Callable[[], object]:
    import torch

    from gpu_magic.frameworks.pytorch import FRAMEWORK
    from gpu_magic.frameworks.target import CPU

    made = partial(FRAMEWORK.scope, CPU, bool) if whose == "ours" else partial(torch.device, "cpu")

    def enter() -> None:
        with made():
            pass

    return enter


def move(whose: str) -> Callable[[], object]:
    import torch

    import gpu_magic

    layers = (torch.nn.Linear(8, 8) for _ in range(COUNT // 2))
    model, device = torch.nn.ModuleList(layers), "cuda:0" if cuda() else "pretend:0"
    if whose == "ours":
        return lambda: gpu_magic.to_cpu(gpu_magic.to_gpu(model))
    return lambda: model.to(device).to("cpu")


def fit(name: str) -> float:
    """Return the seconds that the first prediction takes."""
    import torch

    import gpu_magic

    if name == "transformer":
        layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True)
        model: Any = torch.nn.TransformerEncoder(layer, 12)
        batch: Any = torch.randn(8, 512, 768)
    else:
        from transformers import GPT2Config, GPT2LMHeadModel

        words = torch.randint(50257, (8, 512))
        model, batch = GPT2LMHeadModel(GPT2Config()), {"input_ids": words, "labels": words}
    optimizer = torch.optim.AdamW(model.parameters())
    began = time.perf_counter()
    gpu_magic.fit(model, optimizer, batch)
    return time.perf_counter() - began
