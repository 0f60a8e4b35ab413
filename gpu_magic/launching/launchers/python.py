"""Python's own command line: its options, and the script, the module or the code that it runs (3.14)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpu_magic.errors import LaunchError
from gpu_magic.launching.launchers.words import BEFORE, check_is_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.launching.launchers.plan import Command

__all__ = ["PythonLine"]


class PythonLine:
    """What is typed behind `python`.

    Parameters
    ----------
    program
        Its name or path.
    words
        What follows it.

    Attributes
    ----------
    start
        The program and its options, to the module or the code where it runs one.
    rest
        What follows: the script and its arguments, or those of the module or the code.
    module
        What it runs in a script's place; empty where that is a script or nothing.

    """

    def __init__(self, program: str, words: Sequence[str]) -> None:
        self.module = ""
        self._needs_script = True
        place = 0
        while place < len(words) and words[place].startswith("-") and words[place] != "-":
            word = words[place]
            place += 1
            if word.partition("=")[0] in BEFORE:
                raise LaunchError(f"{word} is not {program}'s: write it before {program}.")
            if word.startswith("--"):
                place += word == "--check-hash-based-pycs"
                self._needs_script = self._needs_script and word not in ("--version", "--help", "--help-all")
                continue
            letter, value = _with_value(word)
            if letter and not value:
                value, place = "".join(words[place : place + 1]), place + 1
            if letter in ("c", "m"):
                self.module = value if letter == "m" else "-c"
                break
            self._needs_script = self._needs_script and not set("hV?") & set(word)
        self.start, self.rest = [program, *words[:place]], list(words[place:])

    def check(self, command: Command) -> None:
        """Check that it has one thing to run, and that this is there.

        Raises
        ------
        LaunchError
            That is not so.

        """
        program = self.start[0]
        if command.script and (self.rest or self.module):
            what = self.rest[0] if self.rest else self.start[-1]
            raise LaunchError(f"The cell is the script, so leave out {what}.")
        if command.script or self.module or not self._needs_script:
            return
        if not self.rest:
            raise LaunchError(f"No script is named; try {program} train.py.")
        check_is_file(Path(command.folder, self.rest[0]), self.rest[0])


def _with_value(word: str) -> tuple[str, str]:
    """Return the option in a word that takes a value, and what of it the word has: `-um pkg`, `-Wignore`."""
    for place, letter in enumerate(word[1:], 2):
        if letter in "cmWX":
            return letter, word[place:]
    return "", ""
