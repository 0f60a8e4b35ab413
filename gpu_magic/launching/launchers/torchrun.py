"""torchrun: it keeps CUDA_VISIBLE_DEVICES and its order (torch 2.13)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.launching.launchers.plan import TORCH_LOGS, Plan
from gpu_magic.launching.launchers.words import CommandLine, start_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.launching.launchers.plan import Command

__all__ = ["MODULES", "plan"]

MODULES = ("torch.distributed.run", "torch.distributed.launch")  # that do the same

_SWITCHES = frozenset(
    """
    --standalone -m --module --no-python --run-path --virtual-local-rank -h --help
    """.split()
)
# With one of these, the ranks meet where the user says; else at a port of this machine that is free.
_RENDEZVOUS = (
    "--standalone",
    "--nnodes",
    "--rdzv-endpoint",
    "--rdzv-backend",
    "--master-addr",
    "--master-port",
)
# With one of these, output goes where the user says.
_OUTPUT = ("--tee", "-t", "--redirects", "-r", "--log-dir", "--logs-specs")


def plan(command: Command, launcher: Sequence[str], words: Sequence[str]) -> Plan:
    """Return how to run it; see `plan_command`."""
    gpus = len(command.gpus)
    line = CommandLine(command, launcher, words, _SWITCHES)
    line.take_count("--nproc-per-node", gpus)
    line.check_script("-m", "--module", "--no-python", "--run-path")
    meeting = () if line.has(*_RENDEZVOUS) else ("--standalone",)
    start = (*start_of(launcher, command.folder), *meeting, f"--nproc-per-node={gpus}")
    rest = (*line.flags, *line.program)
    if line.has(*_OUTPUT):
        return Plan(start, rest)
    logging = ("--redirects=3", "--log-dir={logs}")
    return Plan(start, rest, logging=logging, ranks=gpus, logs=TORCH_LOGS)
