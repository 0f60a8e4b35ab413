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

__all__ = [
    "BEFORE",
    "CommandLine",
    "check_is_file",
    "dashed",
    "find_program",
    "find_python",
    "has_flag",
    "start_of",
]

# Options of a launch, which stand before the launcher's name.
BEFORE = frozenset(
    """
    -n --count --gpus --each --env --cwd --in --out --background --keep --force --dry-run
    """.split()
)
_PACKAGES = {"torchrun": "torch", "accelerate": "accelerate", "accelerate-launch": "accelerate"}


class CommandLine:
    """What is typed behind the name of a launcher.

    Parameters
    ----------
    launcher
        As typed, for errors.
    words
        What follows it.
    switches
        Those of its flags that take no value: a word after any other flag is its value.
    script
        The words that name the script to run, where that is a cell.

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
        self, launcher: str, words: Sequence[str], switches: frozenset[str], script: Sequence[str] = ()
    ) -> None:
        place = 0
        while place < len(words) and words[place].startswith("-") and words[place] != "-":
            place += 1 if dashed(words[place]) in switches or "=" in words[place] else 2
        self.launcher = launcher
        self.flags, self.program = list(words[:place]), list(words[place:])
        for word in self.flags:
            if word.partition("=")[0] in BEFORE:
                raise LaunchError(f"{word} is not {launcher}'s: write it before {launcher}.")
        if script and self.program:
            raise LaunchError(f"The cell is the script, so leave out {shlex.join(self.program)}.")
        self.program += script
        self._is_cell = bool(script)

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

    def check_script(self, folder: str, *instead: str) -> None:
        """Check that there is a script in a folder, unless one of these flags names something else.

        Raises
        ------
        LaunchError
            There is none.

        """
        if not self.program:
            raise LaunchError(f"No script is named; try {self.launcher} train.py.")
        named = [word for word in self.flags if has_flag([word], *instead)]
        if named and self._is_cell:
            raise LaunchError(f"The cell is the script, so leave out {named[0]}.")
        if not named:
            check_is_file(Path(folder, self.program[0]), self.program[0])


def find_python(name: str, folder: str) -> str:
    """Return the path of the interpreter: this one, unless another is named by its path."""
    return find_program(name, folder) if os.sep in name else sys.executable


def dashed(flag: str) -> str:
    """Return a flag as it is compared: launchers take `--gpu_ids=0` and `--gpu-ids 0` for one."""
    return flag.partition("=")[0].replace("_", "-")


def has_flag(words: Sequence[str], *flags: str) -> bool:
    return any(dashed(word) in flags for word in words)


def check_is_file(script: Path, typed: str) -> None:
    """Raise LaunchError where a script is not there."""
    if not script.is_file():
        what = "is a folder" if script.is_dir() else "is not there"
        raise LaunchError(f"{typed} {what}: {script.absolute()}.")


def start_of(launcher: Sequence[str], folder: str) -> tuple[str, ...]:
    """Return a launcher's words with the path of its program: `torchrun`, or `python -m` and its module."""
    program, *rest = launcher
    return (
        find_python(program, folder) if "python" in Path(program).name else find_program(program, folder),
        *rest,
    )


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
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which(name)
    if found:
        return found
    if name in _PACKAGES:
        raise LaunchError(f"{name} is not installed here: pip install {_PACKAGES[name]}.")
    close = difflib.get_close_matches(name, [*_PACKAGES, "deepspeed", "python"], n=1, cutoff=0.7)
    hint = f"; did you mean {close[0]}?" if close else ", or it is not on the PATH."
    raise LaunchError(f"There is no program {name} here{hint}")
