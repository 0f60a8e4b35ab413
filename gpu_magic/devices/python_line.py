"""What `python …` runs, read from its command line: a script, a module, or code that is typed there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PythonLine", "read_python_line"]


class PythonLine(NamedTuple):
    """The parts of a command line.

    Parameters
    ----------
    kind
        "script", "module" or "code"; empty where there is none of them: `python`, `python -V`.
    name
        The script's path, or the module; empty for code.
    options
        How many words come before the script, or its place: Python's own options, and for a module or code
        what follows `-m` or `-c`.
    is_answer
        Whether Python answers and ends, whatever else is there: `-V`, `--help`.

    """

    kind: str
    name: str
    options: int
    is_answer: bool


def read_python_line(words: Sequence[str]) -> PythonLine:
    """Read what follows `python` (3.14).

    Short options can be bundled (`-Ic CODE`, `-mMODULE`). Those before "c", "m", "W" or "X" take no value.
    """
    place, is_answer = 0, False
    while place < len(words) and words[place].startswith("-") and words[place] != "-":
        word = words[place]
        place += 1
        if word.startswith("--"):
            place += word == "--check-hash-based-pycs"
            is_answer = is_answer or word in (
                "--version",
                "--help",
                "--help-all",
                "--help-env",
                "--help-xoptions",
            )
        elif match := re.fullmatch(r"-[^cmWX]*([cmWX])(.*)", word, re.DOTALL):
            value = match[2] or "".join(words[place : place + 1])
            place += not match[2]
            if match[1] in "cm":
                kind = "module" if match[1] == "m" else "code"
                return PythonLine(kind, value if kind == "module" else "", min(place, len(words)), is_answer)
        else:
            is_answer = is_answer or bool(set("hV?") & set(word))
    place = min(place, len(words))
    script = words[place] if place < len(words) and words[place] != "-" else ""
    return PythonLine("script" if script else "", script, place, is_answer)
