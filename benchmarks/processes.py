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
from benchmarks.measure import Table, ask, clean_environment, steady, take_turns
from gpu_magic.kernelspec.kernelspecs import install

if TYPE_CHECKING:
    from collections.abc import Callable

SCRIPT = ["-c", "pass"]


def run() -> list[Table]:
    by_hand, launched = "by hand", "gpu_magic.launch(...).wait()"
    targets = {by_hand: "benchmarks.processes:by_hand", launched: "benchmarks.processes:launched"}
    seconds = steady(targets, {"GPU_MAGIC_SIMULATE": "8xA100-80GB clock=0"})
    launch = Table.of("A Python script that ends at once", seconds, {launched: 3.2})
    with TemporaryDirectory() as folder, driver_libraries() as machine:
        variables = machine | {"GPU_MAGIC_CLAIMS": str(Path(folder, "claims"))}
        return [launch, _cost(variables), _first(variables), _starting(variables, folder)]


def _cost(variables: dict[str, str]) -> Table:
    without, with_claims = "with c.GpuMagics.claims = False", "with claims"
    how = {without: "", with_claims: "claims"}
    seconds = steady({name: f"benchmarks.processes:choosing:{one}" for name, one in how.items()}, variables)
    return Table.of("choose(1), choose(3), on 8 GPUs", seconds, {with_claims: 1.5})


def _first(variables: dict[str, str]) -> Table:
    """Compare with a simulated machine, which is no real one: nothing may be done only there."""
    simulated, real = "a simulated machine", "the stand-in's"
    machines = {simulated: {"GPU_MAGIC_SIMULATE": "8xA100-80GB clock=0"}, real: variables}
    calls = {name: partial(ask, "benchmarks.processes:first", extra) for name, extra in machines.items()}
    return Table.of("The first choice of a process", take_turns(calls, 9), {real: 1.1})


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
    return Table.of("A kernel, to its first answer", seconds, {ours: 1.2})


# What follows runs in a worker.


def by_hand() -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, *SCRIPT], check=True)


def launched() -> Callable[[], object]:
    import gpu_magic

    return lambda: gpu_magic.launch([sys.executable, *SCRIPT], count=1).wait()


def first() -> float:
    import gpu_magic

    gpu_magic.gpus()
    begun = perf_counter()
    gpu_magic.choose(1)
    return perf_counter() - begun


def choosing(claims: str) -> Callable[[], object]:
    import gpu_magic
    from gpu_magic.process.session import current

    current().claims.are_wanted = bool(claims)

    def both() -> None:
        gpu_magic.choose(1)
        gpu_magic.choose(3)

    return both
