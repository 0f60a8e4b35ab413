"""A claim: that a process has chosen a GPU, and keeps it for as long as it lives."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.text import printable, since_text

__all__ = ["Claim"]


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

    """

    owner: str
    since: float
    pid: int | Unknown = UNKNOWN
    notebook: str = ""
    is_own: bool = False

    def __str__(self) -> str:
        """Return `claimed by maria: train.ipynb, since 14:02`; of this user's own, `claimed by you: …`."""
        owner = "you" if self.is_own else self.owner
        what = f": {self.notebook}" if self.notebook else ""
        return printable(f"claimed by {owner}{what}, since {since_text(self.since)}")
