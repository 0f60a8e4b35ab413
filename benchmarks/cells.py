"""What the watch costs: a cell, and an import, before CUDA has started and once it has."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from benchmarks import timing
from benchmarks.machine import driver_libraries
from benchmarks.probe import start_cuda
from benchmarks.report import Row, Table
from gpu_magic.process.drivers import State, probe

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run"]

STATES = {
    "without gpu_magic": "without",
    "with it, CUDA not loaded": "absent",
    "with it, CUDA loaded and not started": "live",
    "with it, once CUDA has started": "frozen",
}
PLAIN, *_, FROZEN = STATES
NOISE = 1.05  # two processes that run the same code differ by this much
MODULES = 100


def run() -> list[Table]:
    cells = {name: f"benchmarks.cells:cell:{state}" for name, state in STATES.items()}
    imports = {name: f"benchmarks.cells:imports:{state}" for name, state in STATES.items()}
    with driver_libraries() as environment:
        left_behind = timing.ask("benchmarks.cells:left_behind", environment)
        tables = [
            _table("A cell, `x = 1`", timing.steady(cells, environment, processes=5)),
            _table(
                "The import of one new module from a cell",
                {name: value / MODULES for name, value in timing.steady(imports, environment).items()},
            ),
        ]
    count = len(left_behind)
    hooks = Row("hooks left once CUDA has started", count)
    return [*tables, Table("What is left behind", [hooks], write=lambda number: f"{number:.0f}")]


def _table(title: str, seconds: dict[str, float]) -> Table:
    rows = [Row(name, value) for name, value in seconds.items()]
    free = seconds[FROZEN] <= NOISE * seconds[PLAIN]
    rows[-1] = Row(FROZEN, seconds[FROZEN], "nothing (5 % noise)", free)
    return Table(title, rows, PLAIN)


# What follows runs in a worker.


def cell(state: str) -> Callable[[], object]:
    """Run a cell as a kernel does: numbered, and remembered."""
    shell = _shell_in(state)
    return lambda: shell.run_cell("x = 1", store_history=True)


def imports(state: str) -> Callable[[], object]:
    """Import modules that are not loaded, as a cell does."""
    _shell_in(state)
    folder = TemporaryDirectory()
    names = [f"benchmarked_{number}" for number in range(MODULES)]
    for name in names:
        (Path(folder.name) / f"{name}.py").touch()
    sys.path.insert(0, folder.name)
    code = compile("\n".join(f"import {name}" for name in names), "<cell>", "exec")

    def import_them() -> TemporaryDirectory[str]:
        exec(code, {"__name__": "__main__"})
        for name in names:
            del sys.modules[name]
        return folder  # which is deleted with its last user

    return import_them


def left_behind() -> list[str]:
    """Name the hooks that are still there once CUDA has started, and the watch has ended."""
    shell = _shell_in("without")
    before = _hooks(shell)
    _bring_into("frozen", shell)
    return [str(hook) for hook in _hooks(shell) if hook not in before]


def _shell_in(state: str) -> Any:
    config = Config()
    config.HistoryManager.enabled = False  # no database on disk, and no thread that writes it
    shell = InteractiveShell.instance(config=config)
    _bring_into(state, shell)
    return shell


def _bring_into(state: str, shell: Any) -> None:
    if state != "without":
        shell.run_line_magic("load_ext", "gpu_magic")
    if state in ("live", "frozen"):
        ctypes.CDLL("libcuda.so.1")
    if state == "frozen":
        shell.run_cell("import math")
        start_cuda()
        shell.run_cell("x = 1")
    expected = {"live": State.LIVE, "frozen": State.FROZEN}.get(state, State.ABSENT)
    assert probe() is expected


def _hooks(shell: Any) -> list[Any]:
    """Return what runs at each cell and at each import."""
    return [*(hook for hooks in shell.events.callbacks.values() for hook in hooks), *sys.meta_path]
