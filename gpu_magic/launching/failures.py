"""How a command has ended: where it has failed, in which rank first, and what else can be the cause."""

from __future__ import annotations

import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_magic.launching.output import last_traceback

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpu_magic.launching.output import Output

__all__ = ["Causes", "find_first_failure", "how_it_ended"]


def how_it_ended(code: int, failure: str) -> str:
    """Say how a command has ended.

    Parameters
    ----------
    code
        Its exit code, negative where a signal has ended it.
    failure
        Why it could not be started; empty where it could.

    """
    if not code:
        return "done"
    if failure:
        return f"could not be started: {failure}"
    if code > 0:
        return f"failed with exit code {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:  # real-time signals have no names
        return f"ended by signal {-code}"


def find_first_failure(outputs: Iterable[Output]) -> tuple[Output, str] | None:
    """Return the one that was the first to write a traceback, and that; None where there is none."""
    found = [(output, text) for output in outputs if (text := last_traceback(output.text))]
    return min(found, key=lambda one: one[0].changed, default=None)


class Causes:
    """What of the machine can make a command fail, as it is when that starts.

    Parameters
    ----------
    folder
        Where its output goes.

    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._oom_kills = folder, _oom_kills()

    def find(self, codes: Sequence[int | None], outputs: Iterable[Output]) -> list[str]:
        """Return a clause for each of them that has come up since; none where the command has not failed.

        Parameters
        ----------
        codes
            The exit codes of its processes.
        outputs
            What it has written.

        """
        found: list[str] = []
        if not any(codes):
            return found
        if _oom_kills() > self._oom_kills and _was_killed(codes, outputs):
            found.append("the system's out-of-memory killer has ended a process meanwhile")
        with suppress(OSError):
            if not shutil.disk_usage(self._folder).free:
                found.append(f"no space is left in {self._folder}, where its output goes")
        return found


def _was_killed(codes: Sequence[int | None], outputs: Iterable[Output]) -> bool:
    """Return whether KILL has ended a process of a command, or as its launcher says a rank."""
    if {-signal.SIGKILL, 128 + signal.SIGKILL} & set(codes):
        return True
    console = "".join(output.text for output in outputs if not output.is_rank)
    return "SIGKILL" in console or "return code = -9" in console


def _oom_kills() -> int:
    """Return how often the out-of-memory killer has ended a process on this machine (Linux, /proc/vmstat)."""
    try:
        text = Path("/proc/vmstat").read_text()
    except OSError:
        return 0
    found = [line.split()[1] for line in text.splitlines() if line.startswith("oom_kill ")]
    return int(found[0]) if found else 0
