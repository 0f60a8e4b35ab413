"""Ends processes of this user: by TERM, and where that was of no use, by KILL."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import TYPE_CHECKING, Literal

from gpu_magic.devices.process_detail import read_detail
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.errors import ProcessError
from gpu_magic.log import logger
from gpu_magic.process.session import current
from gpu_magic.process.view import process_detail, read_machine

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_magic.devices.model import Device
    from gpu_magic.devices.process_detail import ProcessDetail

__all__ = ["PATIENCE", "Endings", "Step", "endings", "has_ended", "this_kernel"]

# What can be done next about a process: nothing, TERM, nothing before it has had time to end, KILL.
Step = Literal["", "end", "wait", "kill"]

# Linux 5.3, and a Python built for it, can send a signal to a process whatever becomes of its number.
_CAN_END = hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")
PATIENCE = 5.0  # seconds that a process has to end after TERM
_MOST_KEPT = 256
_log = logger("process")


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
        return "kill" if time.monotonic() - asked_at >= PATIENCE else "wait"

    def send(
        self,
        pid: int,
        started: int,
        *,
        is_meant: Callable[[Device], bool] | None = None,
        kill: bool = False,
    ) -> None:
        """Send a process TERM or KILL.

        Parameters
        ----------
        pid, started
            The process, and when it was started: see `ProcessDetail`.
        is_meant
            Returns whether a device is one of those that it has to be on; None: it has to be on a device, or
            have claimed one.
        kill
            Whether to send KILL, as TERM was of no use.

        Raises
        ------
        ProcessError
            It is not this user's, not on this device, not the one that was meant, or it can't be told.

        """
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
            self._check(pid, started, is_meant, kill=kill)
            signal.pidfd_send_signal(process, signal.SIGKILL if kill else signal.SIGTERM)
        except ProcessLookupError:
            raise ProcessError(f"Process {pid} has ended already.") from None
        except PermissionError:
            raise ProcessError(f"Process {pid} can't be ended: the system does not allow it.") from None
        finally:
            os.close(process)
        _log.info("Sent %s to process %d", "KILL" if kill else "TERM", pid)
        if len(self._asked) >= _MOST_KEPT:
            self._asked.pop(next(iter(self._asked)))
        self._asked.setdefault((pid, started), time.monotonic())

    def _check(
        self, pid: int, started: int, is_meant: Callable[[Device], bool] | None, *, kill: bool
    ) -> None:
        """Raise ProcessError where the process that has this number now may not be sent the signal."""
        if pid == os.getpid():
            raise ProcessError(this_kernel(pid))
        session = current()
        machine = read_machine(session)
        if machine.simulated:
            raise ProcessError(f"Process {pid} can't be ended: the GPUs here are SIMULATED.")
        listed = {
            process.pid
            for device in machine.devices
            if (is_meant is None or is_meant(device)) and device.status.processes is not UNKNOWN
            for process in device.status.processes
        }
        # Who holds a claim the system's kernel says.
        claims = [claim for device in machine.devices for claim in device.status.claims if claim.is_own]
        has_claimed = is_meant is None and any(claim.pid == pid for claim in claims)
        if pid not in listed and not has_claimed:
            raise ProcessError(f"Process {pid} is not on the GPU any more; nothing was sent to it.")
        detail = process_detail(session, pid)
        if not detail.is_own:
            raise ProcessError(f"Process {pid} is not yours, so it can't be ended from here.")
        if detail.started != started:
            raise ProcessError(f"Process {pid} is another one than was shown; nothing was sent to it.")
        if kill and self.next_step(pid, detail) != "kill":
            raise ProcessError(f"Process {pid} has not had {PATIENCE:.0f} s to end after TERM: end it first.")


endings = Endings()  # of this process: what its panels and its magics have sent


def has_ended(pid: int, started: int, timeout: float) -> bool:
    """Wait for the end of a process, for at most so many seconds; return whether it has come."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if read_detail(pid).started != started:
            return True
        waiting = select.poll()  # not `select`, which takes no descriptor above 1023
        waiting.register(process, select.POLLIN)
        return bool(waiting.poll(timeout * 1000))
    finally:
        os.close(process)


def this_kernel(pid: int) -> str:
    """Say why this process is not ended, and what to do instead."""
    return (
        f"Process {pid} is this kernel: %gpu_free gives memory back, and Jupyter's Kernel menu restarts it "
        "or shuts it down."
    )


def _cannot(pid: int) -> str:
    return (
        f"Process {pid} can't be ended from here without a risk for others: kill {pid} in a terminal ends it."
    )
