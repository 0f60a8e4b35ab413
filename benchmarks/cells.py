"""What cells cost: the extension's loading, the watch over CUDA, `%%on_gpu` and `%%gpu_time`."""

from __future__ import annotations

import ctypes
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from benchmarks.machine import driver_libraries, sleepers
from benchmarks.measure import Table, answer_of, clean_environment, steady, take_turns
from gpu_magic.process.drivers import State, probe

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measure import Bound

NOTHING, OURS = "an extension that does nothing", "gpu_magic"
LOAD = """
import time
begun = time.perf_counter()
get_ipython().run_line_magic("load_ext", {extension!r})
answer = time.perf_counter() - begun
"""
BODY = "x = 1\ny = x + 1\n"
ON_GPU = {"a plain cell": BODY, "%%time": f"%%time\n{BODY}", "%%on_gpu cpu": f"%%on_gpu cpu\n{BODY}"}
# In a kernel, where what %%time prints is sent as messages.
CELLS = """
%load_ext gpu_magic
import jax, tensorflow as tf, torch
from benchmarks.measure import take_turns
torch.ones(1), jax.numpy.ones(1), tf.constant(1)
def runs(cell):
    for _ in range(20):
        get_ipython().run_cell(cell, store_history=True)
answer = take_turns({{name: (lambda cell=cell: runs(cell)) for name, cell in {cells!r}.items()}}, 30)
"""


def run() -> list[Table]:
    return [_loading(), *_watching(), _on_gpu(), _measuring()]


def _loading() -> Table:
    """Compare also with what an extension would pay for the libraries that others of its kind import."""
    extensions = {NOTHING: "does_nothing", OURS: "gpu_magic"}
    with TemporaryDirectory() as folder:
        for module in ("pynvml", "nvitop", "ipywidgets"):
            extensions[f"one that imports {module}"] = f"imports_{module}"
        for name in extensions.values():
            code = f"import {name.partition('_')[2]}\n" if name.startswith("imports_") else ""
            if name != "gpu_magic":
                Path(folder, f"{name}.py").write_text(f"{code}def load_ipython_extension(shell):\n    pass\n")
        environment = clean_environment()
        environment["PYTHONPATH"] += f":{folder}"
        cells = {name: LOAD.format(extension=extension) for name, extension in extensions.items()}
        seconds = take_turns({name: partial(answer_of, cell, environment) for name, cell in cells.items()}, 9)
    return Table.of("%load_ext in a running kernel", seconds, {OURS: (0.5, "one that imports pynvml")})


def _watching() -> list[Table]:
    states = {
        "without gpu_magic": "without",
        "with it, CUDA not loaded": "absent",
        "with it, CUDA loaded and not started": "live",
        "with it, once CUDA has started": "frozen",
    }
    with driver_libraries() as variables:
        targets = {name: f"benchmarks.cells:watched:{state}" for name, state in states.items()}
        seconds = steady(targets, variables, processes=5)
        probes = {name: f"benchmarks.cells:probing:{state}" for name, state in list(states.items())[1:]}
        asked = steady(probes, variables)
    _, absent, live, frozen = states
    return [
        Table.of("A cell, `x = 1`, with amdsmi installed", seconds, {absent: 1.6, live: 1.6, frozen: 1.1}),
        Table.of("One question to the driver: has CUDA started?", asked, {}),
    ]


def _on_gpu() -> Table:
    environment = clean_environment({"TF_CPP_MIN_LOG_LEVEL": "3"})
    seconds = {name: value / 20 for name, value in answer_of(CELLS.format(cells=ON_GPU), environment).items()}
    _, time, ours = seconds
    return Table.of("A cell, with PyTorch, TensorFlow and JAX started", seconds, {ours: (1.5, time)})


def _measuring() -> Table:
    names = {"a plain cell": "plain", "%%time": "time", "%%gpu_time": "gpu_time", "on, and off again": "off"}
    with sleepers() as pids, driver_libraries(pids) as environment:
        targets = {name: f"benchmarks.cells:measured:{how}" for name, how in names.items()}
        seconds = steady(targets, environment | {"CUDA_VISIBLE_DEVICES": "0"}, processes=5)
    bounds: dict[str, Bound] = {"%%gpu_time": (3.5, "%%time"), "on, and off again": 1.3}
    return Table.of("A cell, `1`, on one GPU, CUDA started", seconds, bounds)


# What follows runs in a worker.


def watched(state: str) -> Callable[[], object]:
    """Run a cell as a kernel does: numbered, and remembered."""
    shell = _shell()
    if state != "without":
        shell.run_line_magic("load_ext", "gpu_magic")
    shell.run_cell("import math")
    _bring_into(state)
    shell.run_cell("x = 1")  # the watch sees it
    return lambda: shell.run_cell("x = 1", store_history=True)


def probing(state: str) -> Callable[[], object]:
    _bring_into(state)
    return probe


def _bring_into(state: str) -> None:
    if state in ("live", "frozen"):
        cuda = ctypes.CDLL("libcuda.so.1")
        if state == "frozen":
            assert cuda.cuInit(0) == 0  # as a framework does at its first use of CUDA
    expected = {"live": State.LIVE, "frozen": State.FROZEN}.get(state, State.ABSENT)
    assert probe() is expected


def measured(how: str) -> Callable[[], object]:
    """Run a cell as a kernel does, and drop what it shows."""
    shell = _shell()
    if how in ("gpu_time", "off"):
        shell.run_line_magic("load_ext", "gpu_magic")
    _bring_into("frozen")
    with capture_output():
        for setting in ("on", "off") if how == "off" else ():
            shell.run_line_magic("gpu_time", setting)
        shell.run_cell("1;")  # the watch sees that CUDA has started, and ends
    code = f"%%{how}\n1;" if how in ("time", "gpu_time") else "1;"

    def run_it() -> object:
        with capture_output():
            return shell.run_cell(code)

    return run_it


def _shell() -> Any:
    config = Config()
    config.HistoryManager.enabled = False  # no database on disk, and no thread that writes it
    return InteractiveShell.instance(config=config)
