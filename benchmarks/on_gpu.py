"""What `%%on_gpu` costs beside `%%time`, and its PyTorch scope beside `torch.device`."""

from __future__ import annotations

from ast import literal_eval
from contextlib import nullcontext
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks import timing
from benchmarks.kernel import start_kernel
from benchmarks.report import Row, Table
from benchmarks.timing import clean_environment

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run"]

BODY = "x = 1\ny = x + 1\n"
CELLS = {"a plain cell": BODY, "%%time": f"%%time\n{BODY}", "%%on_gpu cpu": f"%%on_gpu cpu\n{BODY}"}
PLAIN, TIME, ON_GPU = CELLS
NONE, BARE, OURS = "without one", "with torch.device(...)", "gpu_magic's scope"
INSIDE, STEPS = 1000, 50
ROUNDS, REPEAT = 20, 50
PREPARE = """
%load_ext gpu_magic
import time
import jax, tensorflow as tf, torch
torch.ones(1), jax.numpy.ones(1), tf.constant(1)
answer = None
"""
MEASURE = """
answer, shell = {{}}, get_ipython()
for _ in range({rounds}):
    for name, cell in {cells!r}.items():
        begun = time.perf_counter()
        for _ in range({repeat}):
            shell.run_cell(cell, store_history=True)
        answer.setdefault(name, []).append((time.perf_counter() - begun) / {repeat})
"""


def run() -> list[Table]:
    cells = _in_a_kernel()
    scopes = timing.steady({BARE: "benchmarks.on_gpu:bare", OURS: "benchmarks.on_gpu:ours"}, processes=5)
    over = {name: cells[name] - cells[PLAIN] for name in (TIME, ON_GPU)}
    return [
        Table(
            "A cell, with PyTorch, TensorFlow and JAX started", [Row(*pair) for pair in cells.items()], PLAIN
        ),
        Table(
            "The same, over a plain cell",
            [Row(TIME, over[TIME]), Row(ON_GPU, over[ON_GPU])],
            TIME,
        ),
        Table(
            "Entering and leaving PyTorch's scope",
            [
                Row(BARE, scopes[BARE]),
                Row(OURS, scopes[OURS], "2 x the bare one", scopes[OURS] <= 2 * scopes[BARE]),
            ],
            BARE,
        ),
        Table(
            "torch.ones(1) within it",
            [Row(*pair) for pair in _within("inside", INSIDE).items()],
            NONE,
        ),
        Table(
            "A training step within it: a model of two small layers, with Adam",
            [Row(*pair) for pair in _within("training", STEPS).items()],
            NONE,
        ),
    ]


def _within(work: str, times: int) -> dict[str, float]:
    """Return the seconds of one call, or one step, in each of the scopes."""
    contenders = {NONE: "none", BARE: "bare", OURS: "ours"}
    targets = {name: f"benchmarks.on_gpu:{work}:{scope}" for name, scope in contenders.items()}
    return {name: value / times for name, value in timing.steady(targets, processes=5).items()}


def _in_a_kernel() -> dict[str, float]:
    """Run the cells in a running kernel, where what %%time prints is sent as messages; median seconds."""
    environment = clean_environment({"TF_CPP_MIN_LOG_LEVEL": "3"})
    manager, client = start_kernel(environment)
    try:
        for code in (PREPARE, MEASURE.format(cells=CELLS, rounds=ROUNDS, repeat=REPEAT)):
            reply = client.execute_interactive(
                code, user_expressions={"answer": "answer"}, output_hook=lambda _: None, timeout=300
            )
        answer = reply["content"]["user_expressions"]["answer"]["data"]["text/plain"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    seconds: dict[str, list[float]] = literal_eval(answer)
    return {name: median(values) for name, values in seconds.items()}


# What follows runs in a worker.


def bare() -> Callable[[], object]:
    import torch

    def enter() -> None:
        with torch.device("cpu"):
            pass

    return enter


def ours() -> Callable[[], object]:
    scope = _scope()

    def enter() -> None:
        with scope():
            pass

    return enter


def inside(whose: str) -> Callable[[], object]:
    import torch

    return _repeat(_scope_of(whose), lambda: torch.ones(1), INSIDE)


def training(whose: str) -> Callable[[], object]:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer, x = torch.optim.Adam(model.parameters()), torch.randn(32, 8)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return _repeat(_scope_of(whose), step, STEPS)


def _repeat(scope: Callable[[], Any], work: Callable[[], object], times: int) -> Callable[[], object]:
    def repeat() -> None:
        with scope():
            for _ in range(times):
                work()

    return repeat


def _scope_of(whose: str) -> Callable[[], Any]:
    import torch

    scopes: dict[str, Callable[[], Any]] = {
        "none": nullcontext,
        "bare": partial(torch.device, "cpu"),
        "ours": _scope(),
    }
    return scopes[whose]


def _scope() -> Callable[[], Any]:
    import torch  # noqa: F401 - before what knows it

    from gpu_magic.frameworks.pytorch import FRAMEWORK
    from gpu_magic.frameworks.target import CPU

    return partial(FRAMEWORK.scope, CPU, bool)
