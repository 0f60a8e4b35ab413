"""What `%%on_gpu` costs beside `%%time`, and its PyTorch scope beside `torch.device`."""

from __future__ import annotations

import contextlib
import io
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks import timing
from benchmarks.report import Row, Table

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run"]

BODY = "x = 1\ny = x + 1\n"
CELLS = {"a plain cell": BODY, "%%time": f"%%time\n{BODY}", "%%on_gpu cpu": f"%%on_gpu cpu\n{BODY}"}
PLAIN, TIME, ON_GPU = CELLS
BARE, OURS = "with torch.device(...)", "gpu_magic's scope"
NOISE = 1.05
INSIDE = 1000


def run() -> list[Table]:
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    cells = timing.steady({name: f"benchmarks.on_gpu:cell:{name}" for name in CELLS}, quiet, processes=5)
    scopes = timing.steady({BARE: "benchmarks.on_gpu:bare", OURS: "benchmarks.on_gpu:ours"}, processes=5)
    inside = {
        name: value / INSIDE
        for name, value in timing.steady(
            {BARE: "benchmarks.on_gpu:inside:bare", OURS: "benchmarks.on_gpu:inside:ours"}, processes=5
        ).items()
    }
    over = {name: cells[name] - cells[PLAIN] for name in (TIME, ON_GPU)}
    return [
        Table(
            "A cell, with PyTorch, TensorFlow and JAX started", [Row(*pair) for pair in cells.items()], PLAIN
        ),
        Table(
            "The same, over a plain cell",
            [Row(TIME, over[TIME]), Row(ON_GPU, over[ON_GPU], "%%time", over[ON_GPU] <= over[TIME])],
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
            [
                Row(BARE, inside[BARE]),
                Row(OURS, inside[OURS], "5 % noise", inside[OURS] <= NOISE * inside[BARE]),
            ],
            BARE,
        ),
    ]


# What follows runs in a worker.


def cell(name: str) -> Callable[[], object]:
    """Run a cell as a kernel does, with what it prints taken away."""
    import jax
    import tensorflow as tf  # type: ignore[import-untyped]
    import torch
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    torch.ones(1), jax.numpy.ones(1), tf.constant(1)
    config = Config()
    config.HistoryManager.enabled = False
    shell: Any = InteractiveShell.instance(config=config)
    shell.run_line_magic("load_ext", "gpu_magic")

    def run_it() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            shell.run_cell(CELLS[name], store_history=True)

    return run_it


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

    scope = partial(torch.device, "cpu") if whose == "bare" else _scope()

    def work() -> None:
        with scope():
            for _ in range(INSIDE):
                torch.ones(1)

    return work


def _scope() -> Callable[[], Any]:
    import torch  # noqa: F401 - before what knows it

    from gpu_magic.frameworks.pytorch import FRAMEWORK
    from gpu_magic.selection.target import CPU

    return partial(FRAMEWORK.scope, CPU, bool)
