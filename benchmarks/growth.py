"""How what a user waits for grows: with the GPUs, their processes, the claims, and the variables."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.machine import driver_libraries, sleepers
from benchmarks.measure import Table, clean_environment, steady
from tests.native import pretend_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BARE, OURS = "bare pynvml", "gpu_magic.gpus()"
READERS = {BARE: "benchmarks.readers:bare", OURS: "benchmarks.readers:ours"}
MAGICS = ("where", "to_gpu", "gpu_free")
# Another process that holds claims, until its stdin ends.
HOLDER = """
import sys
from gpu_magic.process.session import current
current().claims.hold([f"GPU-{number:08x}-0000-4000-8000-0123456789ab" for number in range(int(sys.argv[1]))])
print(flush=True)
sys.stdin.read()
"""


def run() -> list[Table]:
    gpus: dict[str, float] = {}
    processes, claims, variables = dict(gpus), dict(gpus), dict(gpus)
    with sleepers(64) as pids:
        for number in (1, 8, 16, 64):
            with driver_libraries(pids * 4, gpus=number) as machine:
                gpus |= _named(number, "GPU", steady(READERS, machine, rounds=4))
        for number in (1, 4, 16, 64):
            with driver_libraries(pids * 8, each=number) as machine:
                processes |= _named(number, "process", steady(READERS, machine, rounds=4))
        for number in (1, 10, 100, 500):
            with TemporaryDirectory() as folder, driver_libraries(pids) as machine:
                machine["GPU_MAGIC_CLAIMS"] = str(Path(folder, "claims"))
                with _held(number, machine):
                    claims |= _named(number, "claim", steady({OURS: READERS[OURS]}, machine, rounds=4))
    with TemporaryDirectory() as folder:
        for number in (10, 1000, 10_000, 100_000):
            actions = {
                one: f"benchmarks.growth:typed:{number}:{one}" for one in ("where", "to_gpu", "gpu_free")
            }
            found = steady(actions, {"PYTHONPATH": pretend_path(Path(folder))}, rounds=4, processes=1)
            variables |= _named(number, "variable", {f"%{name}": value for name, value in found.items()})
    return [
        Table.of("GPUs, 4 processes each", gpus, {f"64 GPUs: {OURS}": (4.5, f"64 GPUs: {BARE}")}),
        Table.of("Processes on each of 8 GPUs", processes, {}),
        Table.of("Claims of another process, 8 GPUs", claims, {}),
        Table.of("Variables: lists of ten numbers, and one module", variables, {}),
    ]


def _named(number: int, unit: str, seconds: dict[str, float]) -> dict[str, float]:
    units = f"{unit}{'es' if unit.endswith('s') else 's'}" if number > 1 else unit
    return {f"{number:,} {units}: {name}": value for name, value in seconds.items()}


@contextmanager
def _held(number: int, machine: dict[str, str]) -> Iterator[None]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", HOLDER, str(number)]
    with subprocess.Popen(command, env=clean_environment(machine), stdin=pipe, stdout=pipe) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield
        holder.communicate()


# What follows runs in a worker.


def typed(how: str) -> Callable[[], object]:
    """Type a magic in a shell that has that many variables."""
    import torch
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    number, _, action = how.partition(":")
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "gpu_magic")
    shell.user_ns |= {f"v{one}": list(range(10)) for one in range(int(number))}
    shell.user_ns["model"] = torch.nn.Linear(8, 8).to("pretend:0")
    line = "model --device pretend:0" if action == "to_gpu" else ""

    def type_it() -> None:
        with capture_output():
            shell.run_line_magic(action, line)

    return type_it
