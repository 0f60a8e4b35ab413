"""Ends processes of this user: by TERM, and where that was of no use, by KILL."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Literal

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.errors import ProcessError
from gpu_magic.process.session import current
from gpu_magic.process.view import process_detail, read_machine
from gpu_magic.widget.serialization import key_of

if TYPE_CHECKING:
    from gpu_magic.devices.process_detail import ProcessDetail
    from gpu_magic.widget.page_messages import EndProcess

__all__ = ["Endings", "Step"]

# What can be done next about a process: nothing, TERM, nothing before it has had time to end, KILL.
Step = Literal["", "end", "wait", "kill"]

# Linux 5.3, and a Python built for it, can send a signal to a process whatever becomes of its number.
_CAN_END = hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")
_PATIENCE = 5.0  # seconds that a process has to end after TERM
_MOST_KEPT = 256


class Endings:
    """Notes when processes were sent TERM. Has no lock: each of its calls is short, and does one thing."""

    def __init__(self) -> None:
        self._asked: dict[tuple[int, int], float] = {}  # when, by a process's number and start

    def next_step(self, pid: int, detail: ProcessDetail) -> Step:
        """Return what can be done next about a process that was listed."""
        if not _CAN_END or pid == os.getpid() or not detail.is_own or detail.started is UNKNOWN:
            return ""
        asked_at = self._asked.get((pid, detail.started))
        if asked_at is None:
            return "end"
        return "kill" if time.monotonic() - asked_at >= _PATIENCE else "wait"

    def carry_out(self, message: EndProcess) -> None:
        """Send a process TERM or KILL.

        Raises
        ------
        ProcessError
            It is not this user's, not on this device, not the one that was meant, or it can't be told.

        """
        pid = message.pid
        if not _CAN_END:
            raise ProcessError(_cannot(pid))
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            raise ProcessError(f"Process {pid} has ended already.") from None
        except OSError:  # an older Linux, or a sandbox that forbids it
            raise ProcessError(_cannot(pid)) from None
        try:
            # It stays this one process, whatever becomes of its number: what is found out now is of it.
            self._check(message)
            signal.pidfd_send_signal(process, signal.SIGKILL if message.kill else signal.SIGTERM)
        except ProcessLookupError:
            raise ProcessError(f"Process {pid} has ended already.") from None
        except PermissionError:
            raise ProcessError(f"Process {pid} can't be ended: the system does not allow it.") from None
        finally:
            os.close(process)
        if len(self._asked) >= _MOST_KEPT:
            self._asked.pop(next(iter(self._asked)))
        self._asked.setdefault((pid, message.started), time.monotonic())

    def _check(self, message: EndProcess) -> None:
        """Raise ProcessError where the process that has this number now may not be sent the signal."""
        pid = message.pid
        if pid == os.getpid():
            raise ProcessError(
                f"Process {pid} is this kernel: restart or shut it down in Jupyter's Kernel menu."
            )
        session = current()
        machine = read_machine(session)
        if machine.simulated:
            raise ProcessError(f"Process {pid} can't be ended: the GPUs here are SIMULATED.")
        listed = {
            process.pid
            for device in machine.devices
            if key_of(device) == message.key and device.status.processes is not UNKNOWN
            for process in device.status.processes
        }
        if pid not in listed:
            raise ProcessError(f"Process {pid} is not on this GPU any more; nothing was sent to it.")
        detail = process_detail(session, pid)
        if not detail.is_own:
            raise ProcessError(f"Process {pid} is not yours, so it can't be ended from here.")
        if detail.started != message.started:
            raise ProcessError(f"Process {pid} is another one than was shown; nothing was sent to it.")
        if message.kill and self.next_step(pid, detail) != "kill":
            raise ProcessError(
                f"Process {pid} has not had {_PATIENCE:.0f} s to end after TERM: end it first."
            )


def _cannot(pid: int) -> str:
    return (
        f"Process {pid} can't be ended from here without a risk for others: kill {pid} in a terminal ends it."
    )
