"""What it costs to measure a cell: `%%gpu_time` beside `%%time`, the sampler, and nothing when it is off."""

from __future__ import annotations

import os
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from benchmarks import timing
from benchmarks.machine import driver_libraries, sleepers
from benchmarks.probe import start_cuda
from benchmarks.report import Row, Table

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run"]

PLAIN, TIME, GPU_TIME = "a plain cell", "%%time", "%%gpu_time"
ZEUS, BLOCK = "zeus: begin_window, end_window", "with gpu_magic.gpu_time()"
LOADED, ON, OFF = "gpu_magic loaded", "%gpu_time on", "on, and off again"
SECONDS = 5.0
NOISE = 1.05


def run() -> list[Table]:
    cells = {PLAIN: "plain", TIME: "time", GPU_TIME: "gpu_time", LOADED: "loaded", ON: "on", OFF: "off"}
    targets = {name: f"benchmarks.usage:cell:{how}" for name, how in cells.items()}
    tables = []
    with sleepers() as pids, driver_libraries(pids) as environment:
        for mask, which in (("0", "one GPU"), ("0,1,2,3,4,5,6,7", "eight GPUs")):
            chosen = environment | {"CUDA_VISIBLE_DEVICES": mask}
            tables.append(_table(which, timing.steady(targets, chosen, processes=5)))
            tables.append(_blocks(which, chosen))
            share = timing.ask("benchmarks.usage:sampling", chosen)
            title = f"A cell that waits, measured on {which}"
            tables.append(Table(title, [Row("sampling", share)], write="{:.2%} of a core".format))
    return tables


def _table(which: str, seconds: dict[str, float]) -> Table:
    more = seconds[GPU_TIME] - seconds[TIME]
    rows = [Row(name, value) for name, value in seconds.items()]
    rows[-1] = Row(OFF, seconds[OFF], "nothing (5 % noise)", seconds[OFF] <= NOISE * seconds[LOADED])
    notes = [f"%%gpu_time takes {more * 1e6:.0f} µs more than %%time."]
    return Table(f"A cell, `1`, on {which}, CUDA started", rows, PLAIN, notes=notes)


def _blocks(which: str, chosen: dict[str, str]) -> Table:
    """Compare with zeus, which reads the energy before and after, and nothing meanwhile."""
    contenders = {ZEUS: "window", BLOCK: "block"} if find_spec("zeus") else {BLOCK: "block"}
    targets = {name: f"benchmarks.usage:{how}" for name, how in contenders.items()}
    rows = [Row(*pair) for pair in timing.steady(targets, chosen).items()]
    return Table(f"A block that does nothing, measured on {which}", rows, rows[0].name)


# What follows runs in a worker.


def cell(how: str) -> Callable[[], object]:
    """Run a cell as a kernel does, and drop what it shows."""
    shell = _shell()
    if how in ("gpu_time", "loaded", "on", "off"):
        shell.run_line_magic("load_ext", "gpu_magic")
    start_cuda()
    with capture_output():
        if how in ("on", "off"):
            shell.run_line_magic("gpu_time", "on")
        if how == "off":
            shell.run_line_magic("gpu_time", "off")
        shell.run_cell("1;")  # the watch sees that CUDA has started, and ends
    code = f"%%{how}\n1;" if how in ("time", "gpu_time") else "1;"

    def run_it() -> object:
        with capture_output():
            return shell.run_cell(code)

    return run_it


def block() -> Callable[[], object]:
    """Measure a block, and drop what it shows."""
    import gpu_magic

    start_cuda()

    def measure() -> None:
        with capture_output(), gpu_magic.gpu_time():
            pass

    return measure


def window() -> Callable[[], object]:
    from zeus.monitor import ZeusMonitor

    start_cuda()
    monitor = ZeusMonitor()  # those of CUDA_VISIBLE_DEVICES

    def measure() -> None:
        monitor.begin_window("block", sync_execution=False)
        monitor.end_window("block", sync_execution=False)

    return measure


def sampling() -> float:
    """Return the share of a core that it takes to measure a block that does nothing."""
    import gpu_magic

    start_cuda()
    with gpu_magic.gpu_time():
        pass
    before = _cpu()
    with gpu_magic.gpu_time():
        time.sleep(SECONDS)
    return (_cpu() - before) / SECONDS


def _cpu() -> float:
    return sum(os.times()[:2])


def _shell() -> Any:
    config = Config()
    config.HistoryManager.enabled = False  # no database on disk, and no thread that writes it
    return InteractiveShell.instance(config=config)
