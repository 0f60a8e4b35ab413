"""Python: one process that has all the GPUs; or a launcher, where it runs one as a module."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpu_magic.devices.processes import read_python_line
from gpu_magic.errors import LaunchError
from gpu_magic.launching.launchers import accelerate, torchrun
from gpu_magic.launching.launchers.plan import Plan
from gpu_magic.launching.launchers.words import check_flags, check_is_file, find_python

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.devices.processes import PythonLine
    from gpu_magic.launching.launchers.plan import Command

__all__ = ["plan"]


def plan(command: Command, launcher: Sequence[str], words: Sequence[str]) -> Plan:
    """Return how to run it; see `plan_command`."""
    (program,) = launcher
    line = read_python_line(words)
    options, rest = words[: line.options], words[line.options :]
    check_flags(command, program, options)
    if line.kind == "module" and line.name in torchrun.MODULES:
        return torchrun.plan(command, [program, *options], rest)
    if line.kind == "module" and line.name in accelerate.MODULES:
        return accelerate.plan(command, [program, *options], rest)
    _check(command, program, line, rest)
    return Plan((find_python(program, command.folder),), (*words, *command.script))


def _check(command: Command, program: str, line: PythonLine, rest: Sequence[str]) -> None:
    """Check that it has one thing to run, and that this is there.

    Raises
    ------
    LaunchError
        That is not so.

    """
    if command.script and (line.kind or rest):
        what = line.name or ("-c" if line.kind else rest[0])
        raise LaunchError(f"The cell is the script, so leave out {what}.")
    if command.script or line.is_answer or line.kind in ("module", "code"):
        return
    if not line.kind:
        raise LaunchError(f"No script is named; try {program} train.py.")
    check_is_file(Path(command.folder, line.name), line.name)
