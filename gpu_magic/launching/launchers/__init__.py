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

_PYTHON_SWITCHES = frozenset(
    """
    -b -B -d -E -h -i -I -O -OO -P -q -s -S -u -v -V -x -? --help --version
    """.split()
)


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
    match words:
        case ["torchrun", *rest]:
            return torchrun.plan("torchrun", rest, len(gpus), folder)
        case ["accelerate", "launch", *rest]:
            return accelerate.plan("accelerate launch", rest, len(gpus), folder, environment)
        case ["accelerate-launch", *rest]:
            return accelerate.plan("accelerate-launch", rest, len(gpus), folder, environment)
        case ["deepspeed", *rest]:
            return deepspeed.plan(rest, gpus, folder)
        case ["python" | "python3" as name, *rest]:
            return _python(name, rest, folder)
        case [script, *_] if script.endswith(".py") and not os.access(Path(folder, script), os.X_OK):
            raise LaunchError(f"{script} needs a launcher; try torchrun {script}, or python {script}.")
    return Plan((find_program(words[0]),), tuple(words[1:]))


def _python(name: str, words: Sequence[str], folder: str) -> Plan:
    """One process of this interpreter, which has all the GPUs."""
    places = [place for place, word in enumerate(words) if word in ("-c", "-m")]
    line = CommandLine(name, words, _PYTHON_SWITCHES)
    if not places or (line.program and words.index(line.program[0]) < places[0]):
        line.check_script(folder)
    return Plan((sys.executable,), tuple(words))
