"""How each launcher is told to start one process per GPU, in the order of the choice. One file for each."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_magic.errors import LaunchError
from gpu_magic.launching.launchers import accelerate, deepspeed, torchrun
from gpu_magic.launching.launchers.plan import Plan
from gpu_magic.launching.launchers.words import CommandLine, find_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Plan", "plan_command"]

# Python's own: those that take no value, and those with which it runs no script.
_SWITCHES = frozenset("-b -B -d -E -h -i -I -O -OO -P -q -s -S -u -v -V -x -? --help --version".split())
_NO_SCRIPT = ("-c", "-m", "-V", "--version", "-h", "-?", "--help")


def plan_command(words: Sequence[str], mask: str, folder: str, environment: Mapping[str, str]) -> Plan:
    """Return how to run a command on some GPUs.

    Parameters
    ----------
    words
        The launcher and what follows it: `["torchrun", "train.py", "--lr", "1e-3"]`.
    mask
        CUDA_VISIBLE_DEVICES for it.
    folder
        Where it is run.
    environment
        The command's.

    Raises
    ------
    LaunchError
        It can't be run, or names other GPUs, or another number of them.

    """
    if not words:
        raise LaunchError("Nothing to launch is named: torchrun train.py, for example.")
    gpus = mask.split(",")
    program, *rest = words
    match [Path(program).name, *rest]:
        case ["torchrun", *rest]:
            return torchrun.plan(program, rest, len(gpus), folder)
        case ["accelerate", "launch", *rest]:
            return accelerate.plan([program, "launch"], rest, len(gpus), folder, environment)
        case ["accelerate-launch", *rest]:
            return accelerate.plan([program], rest, len(gpus), folder, environment)
        case ["deepspeed", *rest]:
            return deepspeed.plan(program, rest, gpus, folder)
        case ["python" | "python3", *rest]:
            return _python(program, rest, folder)
        case [script, *_] if script.endswith(".py") and not os.access(Path(folder, program), os.X_OK):
            raise LaunchError(f"{program} needs a launcher; try torchrun {program}, or python {program}.")
    return Plan((find_program(program, folder),), tuple(rest))


def _python(program: str, words: Sequence[str], folder: str) -> Plan:
    """One process, which has all the GPUs; of this interpreter, unless another is named by its path."""
    line = CommandLine(program, words, _SWITCHES)
    if not line.has(*_NO_SCRIPT):
        line.check_script(folder)
    return Plan((find_program(program, folder) if os.sep in program else sys.executable,), tuple(words))
