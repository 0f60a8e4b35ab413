"""How each launcher is told to start one process per GPU, in the order of the choice. One file for each.

Each has a function `plan(command, launcher, words)`: what was typed, divided into the words that name the
launcher (`accelerate launch`, `python -m` and a module) and those that follow.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_magic.errors import LaunchError
from gpu_magic.launching.launchers import accelerate, deepspeed, python, torchrun
from gpu_magic.launching.launchers.plan import Command, Plan
from gpu_magic.launching.launchers.words import find_program, has_program

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Command", "Plan", "plan_command"]

_PYTHON = re.compile(r"python(\d(\.\d+t?)?)?")  # python3.14t has no lock of the interpreter
_SETS_A_VARIABLE = re.compile(r"[A-Za-z_]\w*=")


def plan_command(command: Command) -> Plan:
    """Return how to run a command on its GPUs.

    Raises
    ------
    LaunchError
        It can't be run, or names other GPUs, or another number of them.

    """
    if not command.words:
        raise LaunchError("Nothing to launch is named: torchrun train.py, for example.")
    if any("\0" in word for word in command.words):
        raise LaunchError("A command can't have a NUL character in it.")
    program, *rest = command.words
    _check_is_one_word(command, program)
    match [Path(program).name, *rest]:
        case ["torchrun", *rest]:
            return torchrun.plan(command, [program], rest)
        case ["accelerate", "launch", *rest]:
            return accelerate.plan(command, [program, "launch"], rest)
        case ["accelerate-launch", *rest]:
            return accelerate.plan(command, [program], rest)
        case ["deepspeed", *rest]:
            return deepspeed.plan(command, [program], rest)
        case [name, *rest] if _PYTHON.fullmatch(name):
            return python.plan(command, [program], rest)
    return _other(command, program, rest)


def _check_is_one_word(command: Command, program: str) -> None:
    """Raise LaunchError where a whole command stands in quotes, as after `bash -c`."""
    first, *more = program.split()[:2] or [""]
    # What is longer than a path can be is none; Path.exists raises.
    if not more or os.path.exists(Path(command.folder, program)):  # noqa: PTH110
        return
    if _PYTHON.fullmatch(first) or has_program(first, command.folder):
        raise LaunchError(f"{program} is one word, as it is in quotes: leave them out.")


def _other(command: Command, program: str, words: Sequence[str]) -> Plan:
    """Any other program, after what is likely to be meant in another way."""
    if _SETS_A_VARIABLE.match(program):
        raise LaunchError(f"{program} sets a variable: write --env {program}, or for GPUs --gpus.")
    if program == "accelerate" and words and words[0].endswith(".py"):
        raise LaunchError(f"accelerate has several commands; try accelerate launch {words[0]}.")
    if program.endswith(".py") and not os.access(Path(command.folder, program), os.X_OK):
        raise LaunchError(f"{program} needs a launcher; try torchrun {program}, or python {program}.")
    return Plan((find_program(program, command.folder),), (*words, *command.script))
