"""What became of a process that was to be ended, as `gpu_magic.end_process` returns it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.process.ending import PATIENCE
from gpu_magic.text import printable

if TYPE_CHECKING:
    from gpu_magic.process.own_processes import OwnProcess

__all__ = ["EndedProcess"]

_AGAIN = " Where a Jupyter server has started it, it starts a new one, without variables."


class EndedProcess:
    """A process that was to be ended. Shows itself as a line.

    Parameters
    ----------
    own
        The process.
    called
        What it is called: `train.py`, `the kernel of train.ipynb`.
    has_ended
        Whether it has ended; None where nothing was sent to it.

    """

    def __init__(self, own: OwnProcess, called: str, *, has_ended: bool | None) -> None:
        self._own, self._called, self.has_ended = own, called, has_ended

    def __repr__(self) -> str:
        pid, is_kernel = self._own.pid, self._own.process.is_kernel
        name = printable(f"{self._called} (pid {pid})")
        if self.has_ended is None:
            return f"Nothing was sent to {name}."
        if is_kernel:
            name = f"{name[0].upper()}{name[1:]}"
        if self.has_ended:
            return f"{name} has ended.{_AGAIN if is_kernel else ''}"
        return (
            f"{name} has not ended within {PATIENCE:.0f} s: %gpus --end {pid} --kill ends it at once, "
            "without saving."
        )
