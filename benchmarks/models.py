"""PyTorch's models: the scope of `%%on_gpu`, `to_gpu` beside `module.to`, and what `%gpu_fit` takes."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Table, ask, steady, take_turns
from gpu_magic.move.move import SEARCH_SECONDS
from tests.native import pretend_path

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 10_000  # parameter tensors
OBJECTS = 400_000
MODELS = {"transformer": "a transformer of 12 layers", "gpt2": "GPT-2"}
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
    where = "CUDA" if has_cuda else "a pretend accelerator"
    return [
        Table.of("Entering and leaving the scope of a device", scopes, {SCOPE: 2.4}),
        Table.of(f"{COUNT} parameters to {where} and back", moves, {OURS: 1.4}),
        _beside(),
        *map(_fit, MODELS),
    ]


def _beside() -> Table:
    """Compare a move in a namespace without, and with, what a day's work leaves in one."""
    alone, crowded = "%to_gpu model", f"the same, beside {OBJECTS:,} small objects"
    targets = {alone: "benchmarks.models:typed:", crowded: f"benchmarks.models:typed:{OBJECTS}"}
    with TemporaryDirectory() as folder:
        seconds = steady(targets, {"PYTHONPATH": pretend_path(Path(folder))}, rounds=4)
    table = Table("A move of one layer there and back, typed")
    table.add(alone, seconds[alone])
    # Each of the two magics may search other variables for half a second, and then names the others.
    table.add(crowded, seconds[crowded], seconds[alone] + 2 * SEARCH_SECONDS)
    return table


def _fit(model: str) -> Table:
    bare, ours = "import torch, and a step on fake tensors", "import torch, and gpu_magic.fit"
    variables = {"GPU_MAGIC_SIMULATE": "1xA100-80GB", "GPU_MAGIC_CLAIMS": "off"}
    calls = {
        name: partial(ask, f"benchmarks.models:{how}:{model}", variables)
        for name, how in {bare: "fake_step", ours: "fit"}.items()
    }
    seconds = take_turns(calls, 5)
    return Table.of(f"A prediction for {MODELS[model]}, in a fresh process", seconds, {ours: 1.9})


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


def typed(objects: str) -> Callable[[], object]:
    """Move a layer there and back, in a shell whose namespace has that many other small objects."""
    import torch
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "gpu_magic")
    shell.user_ns["model"] = torch.nn.Linear(8, 8)
    records = ({"id": number, "tags": [str(number)]} for number in range(int(objects or 0) // 2))
    shell.user_ns["records"] = list(records)

    def there_and_back() -> None:
        with capture_output():
            shell.run_line_magic("to_gpu", "model --device pretend:0")
            shell.run_line_magic("to_cpu", "model")

    return there_and_back


def fit(name: str) -> float:
    """Return the seconds of the import of PyTorch and of the first prediction."""
    began = time.perf_counter()
    import torch  # noqa: F401

    import gpu_magic

    imported = time.perf_counter() - began
    training = _training(name)
    began = time.perf_counter()
    gpu_magic.fit(*training)
    return imported + time.perf_counter() - began


def fake_step(name: str) -> float:
    """Return the seconds of the import of PyTorch and of a step on tensors without data."""
    began = time.perf_counter()
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.optim import AdamW
    from torch.utils._pytree import tree_map

    imported = time.perf_counter() - began
    model, _, batch = _training(name)
    mode = FakeTensorMode()
    for module in model.modules():
        own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        for key, one in own:
            setattr(module, key, mode.from_tensor(one))
    optimizer, batch = AdamW(model.parameters()), tree_map(mode.from_tensor, batch)
    began = time.perf_counter()
    with mode:
        output = model(**batch) if isinstance(batch, dict) else model(batch)
        (output.loss if isinstance(batch, dict) else output.sum()).backward()
        optimizer.step()
    return imported + time.perf_counter() - began


def _training(name: str) -> tuple[Any, Any, Any]:
    import torch

    if name == "transformer":
        layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True)
        model: Any = torch.nn.TransformerEncoder(layer, 12)
        batch: Any = torch.randn(8, 512, 768)
    else:
        from transformers import GPT2Config, GPT2LMHeadModel

        words = torch.randint(50257, (8, 512))
        model, batch = GPT2LMHeadModel(GPT2Config()), {"input_ids": words, "labels": words}
    return model, torch.optim.AdamW(model.parameters()), batch
