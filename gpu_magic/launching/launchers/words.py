"""Reads a launcher's command line: its own flags, and the program that it is to run."""

from __future__ import annotations

import difflib
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_magic.errors import LaunchError
from gpu_magic.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.launching.launchers.plan import Command

__all__ = [
    "CommandLine",
    "check_flags",
    "check_is_file",
    "dashed",
    "find_program",
    "find_python",
    "has_flag",
    "has_program",
    "start_of",
]

_PACKAGES = {"torchrun": "torch", "accelerate": "accelerate", "accelerate-launch": "accelerate"}


class CommandLine:
    """What is typed behind the name of a launcher.

    Parameters
    ----------
    command
        What was typed, and where it is to be run.
    launcher
        Its name, in words.
    words
        What follows that.
    switches
        Those of its flags that take no value: a word after any other flag is its value.

    Raises
    ------
    LaunchError
        An option of the launch stands among its flags, or it is to run a cell and something else.

    Attributes
    ----------
    flags
        Its own flags and their values, as typed.
    program
        The script, or what stands in its place, and its arguments.

    """

    def __init__(
        self, command: Command, launcher: Sequence[str], words: Sequence[str], switches: frozenset[str]
    ) -> None:
        place = 0
        while place < len(words) and words[place].startswith("-") and words[place] != "-":
            place += 1 if dashed(words[place]) in switches or "=" in words[place] else 2
        self.launcher = " ".join(launcher)
        self.flags, self.program = list(words[:place]), list(words[place:])
        check_flags(command, self.launcher, self.flags)
        if command.script and self.program:
            raise LaunchError(f"The cell is the script, so leave out {shlex.join(self.program)}.")
        self.program += command.script
        self._command = command

    def has(self, *flags: str) -> bool:
        """Return whether one of these flags was typed, however it is spelled."""
        return has_flag(self.flags, *flags)

    def take_count(self, flag: str, gpus: int) -> None:
        """Remove the flag that says how many processes to start.

        Raises
        ------
        LaunchError
            It is not the number of GPUs.

        """
        kept: list[str] = []
        words = iter(self.flags)
        for word in words:
            if dashed(word) != flag:
                kept.append(word)
                continue
            typed, equals, value = word.partition("=")
            value = value if equals else next(words, "")
            if value not in (str(gpus), "auto", "gpu"):
                raise LaunchError(
                    f"{self.launcher} {typed} {value} contradicts the {counted(gpus, 'GPU')} that it gets, "
                    "one for each process: leave it out; -n and --gpus, before the launcher, say which GPUs."
                )
        self.flags = kept

    def refuse(self, *flags: str) -> None:
        """Raise LaunchError where a flag names GPUs: it would replace those that are chosen."""
        for word in self.flags:
            if dashed(word) in flags:
                typed = word.partition("=")[0]
                raise LaunchError(
                    f"{self.launcher} {typed} would replace the GPUs that are chosen: leave it out, and name "
                    "others with --gpus before the launcher."
                )

    def check_script(self, *instead: str) -> None:
        """Check that there is a script, unless one of these flags names something else.

        Raises
        ------
        LaunchError
            There is none.

        """
        if not self.program:
            raise LaunchError(f"No script is named; try {self.launcher} train.py.")
        named = [word for word in self.flags if has_flag([word], *instead)]
        if named and self._command.script:
            raise LaunchError(f"The cell is the script, so leave out {named[0]}.")
        if not named:
            check_is_file(Path(self._command.folder, self.program[0]), self.program[0])


def check_flags(command: Command, launcher: str, flags: Sequence[str]) -> None:
    """Raise LaunchError where an option of the launch itself stands among a launcher's flags."""
    for word in flags:
        if word.partition("=")[0] in command.options:
            raise LaunchError(f"{word} is not {launcher}'s: write it before {launcher}.")


def find_python(name: str, folder: str) -> str:
    """Return the path of the interpreter: this one, unless a version or a path names another."""
    return sys.executable if name in ("python", "python3") else find_program(name, folder)


def dashed(flag: str) -> str:
    """Return a flag as it is compared: launchers take `--gpu_ids=0` and `--gpu-ids 0` for one."""
    return flag.partition("=")[0].replace("_", "-")


def has_flag(words: Sequence[str], *flags: str) -> bool:
    return any(dashed(word) in flags for word in words)


def check_is_file(script: Path, typed: str) -> None:
    """Raise LaunchError where a script is not there."""
    # Of a name that no file can have, such as a very long one, pathlib raises.
    if not os.path.isfile(script):  # noqa: PTH113
        what = "is a folder" if os.path.isdir(script) else "is not there"  # noqa: PTH112
        raise LaunchError(f"{typed} {what}: {script.absolute()}.")


def start_of(launcher: Sequence[str], folder: str) -> tuple[str, ...]:
    """Return a launcher's words with the path of its program: `torchrun`, or `python -m` and its module."""
    program, *rest = launcher
    find = find_python if Path(program).name.startswith("python") else find_program
    return (find(program, folder), *rest)


def has_program(name: str, folder: str) -> bool:
    """Return whether there is a program of a name: see `find_program`."""
    try:
        find_program(name, folder)
    except LaunchError:
        return False
    return True


def find_program(name: str, folder: str) -> str:
    """Return the path of a program.

    Parameters
    ----------
    name
        Without a slash, it is looked for in this environment, and then on the PATH.
    folder
        Where a path begins.

    Raises
    ------
    LaunchError
        It is not there.

    """
    if os.sep in name:
        program = Path(folder, name)
        if os.access(program, os.X_OK) and not program.is_dir():
            return str(program)
        raise LaunchError(f"{name} is not there, or can't be run.")
    if not name:
        raise LaunchError("The name of a program is empty.")
    beside = Path(sys.executable).parent / name
    is_there = os.access(beside, os.X_OK) and beside.is_file()
    found = str(beside) if is_there else shutil.which(name)
    if found:
        return found
    if name in _PACKAGES:
        raise LaunchError(f"{name} is not installed here: pip install {_PACKAGES[name]}.")
    close = difflib.get_close_matches(name, [*_PACKAGES, "deepspeed", "python"], n=1, cutoff=0.7)
    hint = f"; did you mean {close[0]}?" if close else ", or it is not on the PATH."
    raise LaunchError(f"There is no program {name} here{hint}")
