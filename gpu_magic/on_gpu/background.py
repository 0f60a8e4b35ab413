"""A cell in the background: it runs in a thread, in a block of its own."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import CommandFailed
from gpu_magic.on_gpu.thread_output import output_by_context
from gpu_magic.process.watch import cuda_watch
from gpu_magic.processes.tasks import BackgroundTask
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

__all__ = ["BackgroundCell"]

_STOP_SECONDS = 2.0  # to wait for the end after an interrupt
_MOST_IN_LINE = 200  # characters of an error's message


class BackgroundCell(BackgroundTask):
    """A cell that runs in a thread. The process does not wait for the thread when it ends.

    An error is kept as text, because its frames would keep all their variables.
    """

    uses_variables = True

    def __init__(self, name: str, cell: int) -> None:
        self.name, self._cell = name, cell
        self._where = ""  # its devices, as soon as its block has started
        self._error = ""  # as IPython shows it
        self._refusal: BaseException | None = None  # why its block has not started
        self._state, self._has_failed = "", False  # how it ended
        self._began, self._seconds = time.monotonic(), 0.0
        self._has_begun, self._has_ended = threading.Event(), threading.Event()
        self._lock = threading.Lock()  # guards the next two attributes
        self._can_be_interrupted = self._was_interrupted = False

    def start(
        self, run: Callable[[], Any], error_text: Callable[[BaseException], str], context: Context
    ) -> None:
        """Run the cell in a thread. Return when its block has started, or raise why it cannot.

        `run` calls `block_has_started` and `block_ends`. `error_text` formats an error as IPython shows it.
        """
        work = self._run, run, error_text
        self._thread = threading.Thread(
            target=context.run, args=work, name=f"gpu_magic {self.name}", daemon=True
        )
        self._thread.start()
        try:
            self._has_begun.wait()
        except BaseException:
            self.stop()
            raise
        if self._refusal is not None:
            raise self._refusal

    # In the thread

    def _run(self, run: Callable[[], Any], error_text: Callable[[BaseException], str]) -> None:
        __tracebackhide__ = True
        cuda_watch.begin_background(self._cell)
        try:
            with output_by_context():
                try:
                    self.result, self._state = run(), "done"
                except BaseException as error:  # noqa: BLE001 - `check` raises its text
                    if not self._where:
                        self._refusal = error
                        return
                    self._state = "stopped"
                    # Code can exit when it is interrupted.
                    is_end = isinstance(error, KeyboardInterrupt | SystemExit)
                    self._has_failed = not (self._was_interrupted and is_end)
                    if self._has_failed:
                        kind, message = type(error).__name__, str(error).partition("\n")[0]
                        self._state = f"failed: {kind}{message and ': '}{shortened(message, _MOST_IN_LINE)}"
                    self._error = error_text(error)
                    print(self._error, file=sys.stderr)  # noqa: T201 - below the cell
        finally:
            cuda_watch.end_background(self._cell)
            self._seconds = time.monotonic() - self._began
            self._has_ended.set()
            self._has_begun.set()

    def block_has_started(self, where: str, *, is_on_gpu: bool) -> None:
        """Print where the cell runs, and let it be interrupted from now on."""
        self._where, self.gpus = where, where if is_on_gpu else ""
        print(f"{self.name}: running on {where}")  # noqa: T201
        self._has_begun.set()
        with self._lock:
            if self._was_interrupted:
                raise KeyboardInterrupt
            self._can_be_interrupted = True

    def block_ends(self) -> None:
        """Wait for the last interrupt here, because restoring the device must not be interrupted.

        If None cancels an interrupt, CPython's flag stays set. In Python 3.11, the next function under a
        debugger then never starts. So raise a new interrupt in its place, and wait for it.
        """
        is_last = False
        while True:
            try:
                with self._lock:
                    self._can_be_interrupted = False
                if self._was_interrupted and not is_last:
                    is_last = True
                    self._raise_interrupt()
                    while True:
                        time.sleep(0)
            except KeyboardInterrupt:
                continue
            return

    # In other threads

    def _raise_interrupt(self) -> None:
        """Raise KeyboardInterrupt in the thread, at its next Python instruction."""
        thread, error = ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(KeyboardInterrupt)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, error)

    @property
    def is_running(self) -> bool:
        return not self._has_ended.is_set()

    @property
    def has_failed(self) -> bool:
        return not self.is_running and self._has_failed

    def join(self, timeout: float | None = None) -> bool:
        return self._has_ended.wait(timeout)

    def check(self) -> None:
        if self.has_failed:
            raise CommandFailed(self._error)

    def wait(self, timeout: float | None = None) -> Any:
        if not self.join(timeout):
            raise TimeoutError(f"{self.name} still runs after {timeout} s and continues.")
        self.check()
        return self.result

    def stop(self) -> None:
        """Interrupt the cell, and wait up to 2 s for its end, because a call in C has to return first."""
        with self._lock:
            self._was_interrupted = True
            if self._can_be_interrupted:
                self._raise_interrupt()
        self.join(_STOP_SECONDS)

    def __str__(self) -> str:
        if not self.is_running:
            return f"{self._state} · {self._seconds:.1f} s"
        state = f"running on {self._where}"
        if self._was_interrupted:
            state = "interrupted in a call that cannot be interrupted; ends when the call returns"
        return f"{state} · {time.monotonic() - self._began:.0f} s"
