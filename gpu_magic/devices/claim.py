"""A claim: that a process has chosen a GPU, and keeps it for as long as it lives."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.text import age_text, printable, since_text

__all__ = ["Claim", "idle_text"]

_IDLE_FROM = 600  # seconds: whoever reads an output or gets a coffee is not idle


@dataclass(frozen=True, slots=True)
class Claim:
    """Another process's claim on a device. It is advisory: nothing keeps others off the device.

    Parameters
    ----------
    owner
        The name of the user whose process holds it.
    since
        When it was made, in seconds since the epoch.
    pid
        The process that holds it, as the system's kernel says; UNKNOWN where it can't be seen from here.
    notebook
        What its owner says that it is: the name of a notebook or of a script; empty where nothing is said.
    is_own
        Whether it is a process of the user who looks, as another notebook is.
    idle
        Whole seconds since its last cell has ended, 0 while one runs; UNKNOWN for what has no cells.
    waits
        Whether it is no claim yet: its process came first, and the device is left to it.

    """

    owner: str
    since: float
    pid: int | Unknown = UNKNOWN
    notebook: str = ""
    is_own: bool = False
    idle: int | Unknown = UNKNOWN
    waits: bool = False

    def __str__(self) -> str:
        """Return `claimed by maria: train.ipynb, since 14:02`; of this user's own, `claimed by you: …`."""
        owner = "you" if self.is_own else self.owner
        what = f": {self.notebook}" if self.notebook else ""
        idle = f", {text}" if (text := idle_text(self.idle)) else ""
        how, waiting = ("left to", "waiting ") if self.waits else ("claimed by", "")
        return printable(f"{how} {owner}{what}, {waiting}since {since_text(self.since)}{idle}")


def idle_text(idle: int | Unknown) -> str:
    """Return `idle 9 h`; empty under ten minutes, and if nothing is known."""
    return "" if idle is UNKNOWN or idle < _IDLE_FROM else f"idle {age_text(idle)}"
