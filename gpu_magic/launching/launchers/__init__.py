"""How each launcher is told to start one process per GPU, in the order of the choice. One file for each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_magic.errors import LaunchError
from gpu_magic.launching.launchers import accelerate, deepspeed, torchrun
from gpu_magic.launching.launchers.plan import Command, Plan
from gpu_magic.launching.launchers.words import CommandLine, find_program, find_python

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Command", "Plan", "plan_command"]

# Python's own: those that take no value, and those with which it runs no script.
_SWITCHES = frozenset("-b -B -d -E -h -i -I -O -OO -P -q -s -S -u -v -V -x -? --help --version".split())
_NO_SCRIPT = ("-c", "-m", "-V", "--version", "-h", "-?", "--help")


def plan_command(command: Command) -> Plan:
    """Return how to run a command on its GPUs.

    Raises
    ------
    LaunchError
        It can't be run, or names other GPUs, or another number of them.

    """
    if not command.words:
        raise LaunchError("Nothing to launch is named: torchrun train.py, for example.")
    program, *rest = command.words
    match [Path(program).name, *rest]:
        case ["torchrun", *rest]:
            return torchrun.plan(command, [program], rest)
        case ["python" | "python3", "-m", module, *rest] if module in torchrun.MODULES:
            return torchrun.plan(command, [program, "-m", module], rest)
        case ["accelerate", "launch", *rest]:
            return accelerate.plan(command, [program, "launch"], rest)
        case ["accelerate-launch", *rest]:
            return accelerate.plan(command, [program], rest)
        case ["deepspeed", *rest]:
            return deepspeed.plan(command, [program], rest)
        case ["python" | "python3", *rest]:
            return _python(command, program, rest)
    return _other(command, program, rest)


def _python(command: Command, program: str, words: Sequence[str]) -> Plan:
    """One process, which has all the GPUs."""
    line = CommandLine(program, words, _SWITCHES, command.script)
    if not line.has(*_NO_SCRIPT):
        line.check_script(command.folder)
    elif command.script:
        raise LaunchError(f"The cell is the script, so leave out {line.flags[-1]}.")
    return Plan((find_python(program, command.folder),), (*line.flags, *line.program))


def _other(command: Command, program: str, words: Sequence[str]) -> Plan:
    """Any other program, after what is likely to be meant in another way."""
    if "=" in program:
        raise LaunchError(f"{program} sets a variable: write --env {program}, or for GPUs --gpus.")
    if program == "accelerate" and words and words[0].endswith(".py"):
        raise LaunchError(f"accelerate has several commands; try accelerate launch {words[0]}.")
    if program.endswith(".py") and not os.access(Path(command.folder, program), os.X_OK):
        raise LaunchError(f"{program} needs a launcher; try torchrun {program}, or python {program}.")
    return Plan((find_program(program, command.folder),), (*words, *command.script))
