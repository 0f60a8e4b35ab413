"""DeepSpeed: its runner sorts GPUs, counts them as nvidia-smi does, and takes no UUIDs (0.19.8).

The launcher that the runner starts on each machine takes them in any order, and by UUID. So that is started
here.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_magic.errors import LaunchError
from gpu_magic.launching.launchers.plan import Plan
from gpu_magic.launching.launchers.words import CommandLine, find_program
from gpu_magic.launching.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.launching.launchers.plan import Command

__all__ = ["plan"]

_SWITCHES = frozenset(
    """
    -h --help --module --no-python --no-local-rank --bind-cores-to-rank -q --quiet
    """.split()
)


def plan(command: Command, launcher: Sequence[str], words: Sequence[str]) -> Plan:
    """Return how to run it; see `plan_command`."""
    gpus = command.gpus
    line = CommandLine(command, launcher, words, _SWITCHES)
    line.refuse("--include", "--exclude", "--hostfile", "--num-nodes", "-H", "-i", "-e")
    line.take_count("--num-gpus", len(gpus))
    line.check_script("--module", "--no-python")
    numbers = [int(gpu) if gpu.isdigit() else gpu for gpu in gpus]
    world = base64.urlsafe_b64encode(json.dumps({"localhost": numbers}).encode()).decode()
    start = [
        _interpreter(launcher[0], command.folder),
        "-m",
        "deepspeed.launcher.launch",
        f"--world_info={world}",
    ]
    if not line.has("--master-addr"):
        start.append("--master_addr=127.0.0.1")
    if not line.has("--master-port"):
        start.append(f"--master_port={free_ports(1)[0]}")
    rest = (*line.flags, *line.program)
    if line.has("--enable-each-rank-log"):
        return Plan(tuple(start), rest)
    logging, logs = ("--enable_each_rank_log={logs}",), ("*_rank{rank}.log",)
    return Plan(tuple(start), rest, logging=logging, ranks=len(gpus), logs=logs)


def _interpreter(program: str, folder: str) -> str:
    """Return the Python that DeepSpeed is installed in."""
    if os.sep in program:
        return find_program(str(Path(program).with_name("python")), folder)
    if find_spec("deepspeed") is None:
        raise LaunchError("deepspeed is not installed here: pip install deepspeed.")
    return sys.executable
