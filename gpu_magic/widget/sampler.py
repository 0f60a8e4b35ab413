"""The one thread that reads the machine while somebody looks at a panel."""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Sampler"]


class Sampler:
    """Calls a function once a second on a thread of its own, until it is stopped or has nobody to call for.

    Parameters
    ----------
    tick
        What is called; the thread ends where it returns False. What it raises is its own business.
    seconds
        From one call to the next.

    """

    def __init__(self, tick: Callable[[], bool], seconds: float = 1.0) -> None:
        self._tick, self._seconds = tick, seconds
        self._lock = threading.Lock()
        self._wake = threading.Event()  # of the thread that runs now
        self._thread: threading.Thread | None = None
        # A daemon thread that writes to a kernel's sockets while Python shuts down can crash it.
        atexit.register(self.stop)

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begin, where it does not run yet."""
        with self._lock:
            if not self.is_running:  # nor in a fork of the process in which it did
                self._wake = threading.Event()
                self._thread = threading.Thread(target=self._run, name="gpu_magic-panel", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End it; a call that is under way is waited for, half a second at most."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            with contextlib.suppress(RuntimeError):  # forked away
                thread.join(0.5)

    def poke(self) -> None:
        """Have the next call now."""
        self._wake.set()

    def _run(self) -> None:
        wake = self._wake
        due = time.monotonic() + self._seconds
        while True:
            wake.wait(max(0.0, due - time.monotonic()))
            with self._lock:
                if threading.current_thread() is not self._thread:  # stopped
                    return
                wake.clear()
            # After a pause (a laptop that slept, a driver that hung) no calls are made up for.
            due = max(due + self._seconds, time.monotonic() + self._seconds / 2)
            if not self._tick():
                with self._lock:
                    if threading.current_thread() is self._thread:
                        self._thread = None
                return
