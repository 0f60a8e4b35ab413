"""What a launch and a claim cost, and a kernel that starts with a GPU."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING

from jupyter_client.manager import KernelManager

from benchmarks.machine import driver_libraries
from benchmarks.measure import Table, clean_environment, steady, take_turns
from gpu_magic.kernelspec.kernelspecs import install

if TYPE_CHECKING:
    from collections.abc import Callable

SCRIPT = ["-c", "pass"]


def run() -> list[Table]:
    by_hand, launched = "by hand", "gpu_magic.launch(...).wait()"
    targets = {by_hand: "benchmarks.processes:by_hand", launched: "benchmarks.processes:launched"}
    seconds = steady(targets, {"GPU_MAGIC_SIMULATE": "8xA100-80GB clock=0"})
    launch, more = Table("A Python script that ends at once"), seconds[launched] - seconds[by_hand]
    launch.add(by_hand, seconds[by_hand])
    bound = f"at most 40 ms more: {more * 1000:.1f} ms"
    launch.add(launched, seconds[launched], bound, holds=more <= 40e-3)
    with TemporaryDirectory() as folder, driver_libraries() as machine:
        variables = machine | {"GPU_MAGIC_CLAIMS": str(Path(folder, "claims"))}
        return [launch, _cost(variables), _starting(variables, folder)]


def _cost(variables: dict[str, str]) -> Table:
    table, without = Table("choose(1), choose(3), on 8 GPUs"), "with c.GpuMagics.claims = False"
    targets = {
        without: "benchmarks.processes:choosing:",
        "with claims": "benchmarks.processes:choosing:claims",
    }
    seconds = steady(targets, variables)
    one = (seconds["with claims"] - seconds[without]) / 2
    table.add(without, seconds[without])
    bound = f"at most 2 ms for one: {one * 1000:.2f} ms"
    table.add("with claims", seconds["with claims"], bound, holds=one <= 2e-3)
    return table


def _starting(variables: dict[str, str], folder: str) -> Table:
    """Compare kernels from their start to their first answer, as a page waits for it."""
    plain, ours = "ipykernel's own", "Python 3 · a free GPU"
    names = {plain: "python3", ours: install("auto", prefix=folder).name}

    def start(name: str) -> float:
        manager = KernelManager(kernel_name=name, transport="ipc")
        manager.kernel_spec_manager.kernel_dirs.append(f"{folder}/share/jupyter/kernels")
        begun = perf_counter()
        manager.start_kernel(env=clean_environment(variables), stderr=subprocess.DEVNULL)
        client = manager.client()
        client.start_channels()
        client.kernel_info(reply=True, timeout=60)
        seconds = perf_counter() - begun
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        return seconds

    seconds = take_turns({name: partial(start, kernel) for name, kernel in names.items()}, 15)
    table, more = Table("A kernel, to its first answer"), seconds[ours] - seconds[plain]
    table.add(plain, seconds[plain])
    table.add(ours, seconds[ours], f"at most 60 ms more: {more * 1000:.0f} ms", holds=more <= 60e-3)
    return table


# What follows runs in a worker.


def by_hand() -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, *SCRIPT], check=True)


def launched() -> Callable[[], object]:
    import gpu_magic

    return lambda: gpu_magic.launch([sys.executable, *SCRIPT], count=1).wait()


def choosing(claims: str) -> Callable[[], object]:
    import gpu_magic
    from gpu_magic.process.session import current

    current().claims.are_wanted = bool(claims)

    def both() -> None:
        gpu_magic.choose(1)
        gpu_magic.choose(3)

    return both
