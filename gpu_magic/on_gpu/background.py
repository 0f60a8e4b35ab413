"""A cell in the background: a function in a thread, with the device of that thread."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import TYPE_CHECKING, Any

from gpu_magic.process.physical import labels
from gpu_magic.process.tasks import BackgroundTask
from gpu_magic.process.watch import cuda_watch
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from gpu_magic.on_gpu.scope import Scope

__all__ = ["ThreadTask"]

_PATIENCE = 2.0  # seconds to wait for the end after an interrupt
_MOST_SAID = 200  # characters of an error's message in a line


class ThreadTask(BackgroundTask):
    """A function in a thread. The process does not wait for the thread when it ends.

    The thread enters `scope` before the function, and always exits it. The thread runs all its work through
    `call`. It calls `at_begin` with this task before `start` returns, and `at_end` after the function ends.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[], Any],
        scope: AbstractContextManager[Scope],
        *,
        cell: int,
        call: Callable[[Callable[[], None]], None],
        at_begin: Callable[[ThreadTask], None],
        at_end: Callable[[ThreadTask], None],
    ) -> None:
        self.name, self.where, self.cell, self.began = name, "", cell, time.monotonic()
        self.error: BaseException | None = None  # raised in the thread
        self._function, self._scope = function, scope
        self._at_begin, self._at_end = at_begin, at_end
        self._begun, self._ended = threading.Event(), threading.Event()
        self._seconds: float | None = None
        self._lock = threading.Lock()  # guards the next two attributes
        self._can_be_interrupted = self._was_interrupted = False
        self._how = ""  # how the task ended
        self._thread = threading.Thread(
            target=call, args=(self._work,), name=f"gpu_magic {name}", daemon=True
        )

    def start(self) -> None:
        """Start the thread. Return as soon as the function runs, or raise the error of entering the scope."""
        self._thread.start()
        try:
            self._begun.wait()
        except BaseException:
            self.interrupt()
            raise
        if not self.where and self.error is not None:
            raise self.error

    @property
    def is_running(self) -> bool:
        return not self._ended.is_set()

    @property
    def has_failed(self) -> bool:
        return not self.is_running and self.error is not None and not self._was_ended_by_interrupt

    @property
    def seconds(self) -> float:
        """The running time of the task."""
        return time.monotonic() - self.began if self._seconds is None else self._seconds

    def join(self, timeout: float | None = None) -> bool:
        return self._ended.wait(timeout)

    def check(self) -> None:
        __tracebackhide__ = True
        if self.has_failed and self.error is not None:
            raise self.error.with_traceback(None)

    def wait(self, timeout: float | None = None) -> Any:
        if not self.join(timeout):
            raise TimeoutError(f"{self.name} still runs after {timeout} s and continues.")
        self.check()
        return self.result

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the thread, at its next Python instruction."""
        with self._lock:
            self._was_interrupted = True
            if self._can_be_interrupted:
                _raise_in(self._thread, KeyboardInterrupt)

    def stop(self) -> None:
        """Interrupt the task, and wait up to 2 s for its end, because a call in C has to return first."""
        self.interrupt()
        self.join(_PATIENCE)

    def __str__(self) -> str:
        if not self.is_running:
            return f"{self._how} · {self.seconds:.1f} s"
        if self._was_interrupted:
            return (
                "interrupted in a call that cannot be interrupted; ends when the call returns "
                f"· {self.seconds:.0f} s"
            )
        return f"running on {self.where} · {self.seconds:.0f} s"

    def kept(self) -> Mapping[str, object]:
        if self.is_running:
            return {}
        kept = {f"the result of {self.name}": self.result, f"the error of {self.name}": self.error}
        return {what: value for what, value in kept.items() if value is not None}

    def forget(self) -> None:
        self.result = None
        if self.error is not None and self.has_failed:
            self.error = RuntimeError(self._how)

    # In the thread

    def _work(self) -> None:
        __tracebackhide__ = True
        cuda_watch.begin_beside(self.cell)
        try:
            with self._scope as scope:
                self.where = ", ".join(labels(scope.devices, scope.machine).values())
                self.gpus = self.where if any(device.kind == "gpu" for device in scope.devices) else ""
                self._at_begin(self)
                self._begun.set()
                try:
                    self._allow_interrupts()
                    self.result = self._function()
                finally:
                    self._end_interrupts()
        except BaseException as error:  # noqa: BLE001 - `wait` and `check` raise it
            self.error = error
        finally:
            cuda_watch.end_beside(self.cell)
            self._seconds = time.monotonic() - self.began
            self._how = self._how_it_ended()
            del self._function, self._scope  # they refer to the notebook's variables
            try:
                if self.where:
                    self._at_end(self)
                    _drop_frames(self.error)
            finally:
                self._ended.set()
                self._begun.set()

    def _how_it_ended(self) -> str:
        if self.error is None:
            return "done"
        if self._was_ended_by_interrupt:
            return "stopped"
        kind, message = type(self.error).__name__, str(self.error).partition("\n")[0]
        return f"failed: {kind}{message and ': '}{shortened(message, _MOST_SAID)}"

    @property
    def _was_ended_by_interrupt(self) -> bool:
        return self._was_interrupted and isinstance(self.error, KeyboardInterrupt)

    def _allow_interrupts(self) -> None:
        with self._lock:
            if self._was_interrupted:
                raise KeyboardInterrupt
            self._can_be_interrupted = True

    def _end_interrupts(self) -> None:
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
                    _raise_in(self._thread, KeyboardInterrupt)
                    while True:
                        time.sleep(0)
            except KeyboardInterrupt:
                continue
            return


def _drop_frames(error: BaseException | None) -> None:
    """Drop the frames of an error and of the errors before it, because frames hold all their variables."""
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.with_traceback(None)
            waiting += [one.__cause__, one.__context__]
            waiting += one.exceptions if isinstance(one, BaseExceptionGroup) else ()


def _raise_in(thread: threading.Thread, error: type[BaseException]) -> None:
    """Raise an error in a thread at its next instruction. It replaces an error that is still pending."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(error))
