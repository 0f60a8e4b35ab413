"""Reading 8 GPUs with 4 processes each, with owners and names: from Python, in a kernel, and in a shell.

Every reader has a function that prepares and returns the call that is timed; all are first seen to read the
same figures: for each GPU MiB used, percent, °C and watts, and for each process PID, owner, name and MiB.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import Any

from benchmarks.machine import GPUS, PROCESSES, driver_libraries, sleepers
from benchmarks.measure import Table, answer_of, ask, clean_environment, prepare, steady, take_turns
from benchmarks.readers import PLAIN

READERS = {
    "bare pynvml": "benchmarks.readers:bare",
    "gpu_magic, the reader alone": "benchmarks.readers:reader",
    "gpu_magic.gpus()": "benchmarks.readers:ours",
    "nvitop, its leanest way": "benchmarks.readers:nvitop",
}
BARE, READER, OURS, NVITOP = READERS
SCRIPT = "from benchmarks.readers import bare\nfor gpu in bare()():\n    print(*gpu)"
COMMANDS = {
    "bare pynvml, in a script": ["-c", SCRIPT],
    "gpu-magic": ["-m", "gpu_magic"],
    "nvitop -1": ["-m", "nvitop", "-1"],
}
# A kernel has most of the standard library loaded that the readers import, and the extension has its hooks.
CELL = """
import time
from benchmarks.measure import prepare
import benchmarks.readers
if {is_ours}:
    get_ipython().run_line_magic("load_ext", "gpu_magic")
begun = time.process_time()
prepare({target!r})()
answer = time.process_time() - begun
"""


def run() -> list[Table]:
    machine = f"{GPUS} GPUs, {PROCESSES} processes each"
    with sleepers() as pids, driver_libraries(pids) as variables:
        environment = clean_environment(variables)
        answers = {
            name: ask(f"benchmarks.snapshot:read:{target}", variables) for name, target in READERS.items()
        }
        for name, answer in answers.items():
            assert answer == answers[BARE], f"{name} read {answer}\nand bare pynvml {answers[BARE]}"
        often = steady(READERS, variables)
        cells = {name: CELL.format(is_ours=name == OURS, target=READERS[name]) for name in (BARE, OURS)}
        in_kernel = {name: partial(answer_of, cell, environment) for name, cell in cells.items()}
        first = take_turns(in_kernel, 9)
        shell = take_turns({name: partial(_shell, name, environment) for name in COMMANDS}, 9)
    with sleepers(PROCESSES) as pids, driver_libraries(pids, gpus=1) as variables:
        one = steady(READERS, variables)
    return [
        Table.of(f"A snapshot, again and again: {machine}", often, {READER: 2.1, OURS: 4.2}),
        Table.of(f"The same, of one GPU with {PROCESSES} processes", one, {OURS: (1.6, NVITOP)}),
        Table.of("The first snapshot in a running kernel: processor time", first, {OURS: 3.6}),
        Table.of(f"The table in a shell: {machine}", shell, {"gpu-magic": 2.4}),
    ]


def _shell(name: str, environment: dict[str, str]) -> None:
    command, nowhere = [sys.executable, *COMMANDS[name]], subprocess.DEVNULL
    # nvitop logs each question that a library has no answer to.
    subprocess.run(command, env=environment, cwd="/", stdout=nowhere, stderr=nowhere, check=True)


# What follows runs in a worker.


def read(target: str) -> list[Any]:
    """Return a reader's answer in the form that all can be compared in."""
    return PLAIN[target.rpartition(":")[2]](prepare(target)())
