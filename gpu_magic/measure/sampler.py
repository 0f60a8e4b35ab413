"""A thread that reads the machine repeatedly, while a panel is visible or a cell is measured."""

from __future__ import annotations

import atexit
import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Sampler"]


class Sampler:
    """Calls a function at regular intervals on one thread, until it returns False or raises.

    Its methods can be called on any thread. Its lock guards which thread is the current one. It does not hold
    the lock while it calls the function.
    """

    def __init__(self, tick: Callable[[], bool], seconds: float = 1.0, name: str = "panel") -> None:
        self._tick, self._seconds, self._name = tick, seconds, name
        self._is_wanted = False  # `start` was called since the last call of the function
        self._due = 0.0  # when the next call is made, in seconds of time.monotonic()
        self._begin()
        # A daemon thread that writes to a kernel's sockets while Python shuts down can crash it.
        atexit.register(self.stop)

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._wake = threading.Event()  # of the current thread
        self._thread: threading.Thread | None = None

    def _forget_parent(self) -> None:
        """Start again in a forked child, because a lock that a thread held at the fork stays locked."""
        if self._process != os.getpid():
            self._begin()

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, within: float | None = None) -> None:
        """Start the thread, unless it is running. `within` seconds, at the latest, it makes a call."""
        self._forget_parent()
        due = time.monotonic() + (self._seconds if within is None else within)
        with self._lock:
            self._is_wanted = True
            if self.is_running:
                if due < self._due:
                    self._due = due
                    self._wake.set()
            else:
                self._wake, self._due = threading.Event(), due
                self._thread = threading.Thread(target=self._run, name=f"gpu_magic-{self._name}", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Stop the thread. Wait at most half a second for a running call."""
        self._forget_parent()
        with self._lock:
            thread, self._thread = self._thread, None
            self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(0.5)

    def poke(self) -> None:
        """Make the next call now."""
        self._forget_parent()
        with self._lock:
            self._due = time.monotonic()
            self._wake.set()

    def _run(self) -> None:
        wake = self._wake
        while True:
            wake.wait(max(0.0, self._due - time.monotonic()))
            with self._lock:
                if threading.current_thread() is not self._thread:  # stopped
                    return
                wake.clear()
                now = time.monotonic()
                if now < self._due:  # `start` has made it due earlier
                    continue
                self._is_wanted = False
                # Missed calls (a laptop slept, a driver hung) are skipped.
                self._due = max(self._due + self._seconds, now + self._seconds / 2)
            if not self._tick():
                with self._lock:
                    if threading.current_thread() is self._thread and not self._is_wanted:
                        self._thread = None
                        return
