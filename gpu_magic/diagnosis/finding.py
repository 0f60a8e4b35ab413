"""A finding: what a check has found, what it means, and the one command that mends it."""

from __future__ import annotations

from typing import Literal

from gpu_magic.devices.record import record
from gpu_magic.text import shortened

__all__ = ["Finding", "Severity", "one_line"]

# "unknown": a source could not be read, or a check could not be made.
Severity = Literal["wrong", "worth knowing", "unknown"]

_LONGEST = 300  # characters of an error


@record
class Finding:
    """What a check has found.

    Parameters
    ----------
    severity
        "wrong": a GPU can't be used as meant. "worth knowing": it can, and something else may surprise.
    about
        What it is about, as the rows of the facts are called: "PyTorch", "driver".
    what
        What is so, as a sentence.
    meaning
        What follows from it, as a sentence or two; empty where `what` says enough.
    mend
        What mends it, to be typed in this program: a command or line, or two lines where something has to be
        removed before; empty where nothing has to be done.
    public
        What is said in its place in a report for others, where `what` names a process or a file; then `mend`
        is left out there.

    """

    severity: Severity
    about: str
    what: str
    meaning: str = ""
    mend: str = ""
    public: str = ""


def one_line(error: Exception) -> str:
    """Return an error as a line: what it is, and what it says."""
    return f"{type(error).__name__}: {shortened(' '.join(str(error).split()), _LONGEST)}"
