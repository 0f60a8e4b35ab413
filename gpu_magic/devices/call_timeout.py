"""Calls that may never return, made on threads that can be left behind.

An NVML call into a driver in trouble can hang for minutes, and Python can't cancel it from outside. So the
calls are made on a daemon thread, in order. If one hangs, each call that still waits gets a thread of its
own, and the caller gets an answer for every call that returned.

One kept thread is faster than one for each GPU: 8 threads that take turns with the interpreter lock double
the time of a snapshot, and starting a thread for each snapshot adds half.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

__all__ = ["CallTimeout"]

T = TypeVar("T")

# After this long without an answer the calls that wait are made on other threads. It is longer than any
# healthy call takes (milliseconds), and short enough that a GPU that hangs does not delay the others much.
_STALL_SECONDS = 0.25


class _Call:
    """A call, and what it returned or raised."""

    __slots__ = ("_function", "error", "has_ended", "result")

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self.result: Any = None
        self.error: BaseException | None = None
        self.has_ended = False

    def make(self) -> None:
        try:
            self.result = self._function()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that asked
            self.error = error
        self.has_ended = True


class _Batch:
    """Calls that wait to be made, by whichever thread takes them.

    `list.append` and `deque.popleft` are atomic, so there is no lock that a hanging thread could hold.
    """

    def __init__(self, calls: Iterable[_Call]) -> None:
        self.waiting = deque(calls)
        self.ended: list[_Call] = []
        self.all_ended = threading.Event()
        self._count = len(self.waiting)

    def make_calls(self) -> None:
        """Make calls until none waits."""
        while (call := self._take()) is not None:
            call.make()
            self.ended.append(call)
            if len(self.ended) == self._count:
                self.all_ended.set()

    def stop(self) -> set[_Call]:
        """Remove the calls that still wait, so that no thread begins them, and return them."""
        return set(iter(self._take, None))

    def _take(self) -> _Call | None:
        try:
            return self.waiting.popleft()
        except IndexError:
            return None


def _make_batches(batches: queue.SimpleQueue[_Batch | None]) -> None:
    while (batch := batches.get()) is not None:
        batch.make_calls()
        del batch  # and the results in it, while the thread waits


def _start_thread(target: Callable[[], None]) -> None:
    threading.Thread(target=target, name="gpu_magic-nvml", daemon=True).start()


class CallTimeout:
    """Makes calls, and gives up on those that take too long. For one thread at a time.

    Parameters
    ----------
    seconds
        How long a list of calls may take.

    """

    def __init__(self, seconds: float = 2.0) -> None:
        self.seconds = seconds
        self._start_over()

    def _start_over(self) -> None:
        self._pid = os.getpid()
        self._batches: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._latest: threading.Event | None = None  # of the batch that the kept thread was last given
        self._hanging: dict[Hashable, _Call] = {}

    def call(
        self, functions: Sequence[tuple[Hashable, Callable[[], T]]], seconds: float | None = None
    ) -> list[T | None]:
        """Call functions, in order, and return what they return.

        Parameters
        ----------
        functions
            Pairs of a key and a function. A function whose key has a call that still hangs is not called.
        seconds
            How long this list may take; None for as long as always.

        Returns
        -------
        list[T | None]
            In the order of `functions`; None for a call that did not return in time.

        Raises
        ------
        BaseException
            What a function raised.

        """
        if os.getpid() != self._pid:  # threads do not survive a fork
            self._start_over()
        calls = {key: _Call(function) for key, function in functions if not self.hangs(key)}
        for key in calls:
            self._hanging.pop(key, None)  # it has ended meanwhile
        batch = _Batch(calls.values())
        try:
            if calls:
                self._make(batch, self.seconds if seconds is None else seconds)
        finally:  # after an interrupt, too: calls that hang are still to be known
            never_begun = batch.stop()
            for key, call in calls.items():
                if not call.has_ended and call not in never_begun:
                    self._hanging[key] = call
        for call in calls.values():
            if call.error is not None:
                raise call.error
        return [calls[key].result if key in calls else None for key, _ in functions]

    def hangs(self, key: Hashable) -> bool:
        """Return whether a call that was given up has not returned yet. Can be called on any thread."""
        call = self._hanging.get(key)
        return call is not None and not call.has_ended

    def late(self, key: Hashable) -> Any:
        """Return what a call has returned since it was given up; None if it has not, or was made again."""
        call = self._hanging.get(key)
        return call.result if call is not None and call.has_ended else None

    def close(self) -> None:
        """End the kept thread, as soon as the call that it makes returns."""
        if self._latest is not None and os.getpid() == self._pid:
            self._batches.put(None)
        self._latest = None

    def _make(self, batch: _Batch, seconds: float) -> None:
        """Have the calls of a batch made; return when all have ended or the time is up."""
        deadline = time.monotonic() + seconds
        stall = min(_STALL_SECONDS, seconds / 8)
        if self._latest is None or not self._latest.is_set():  # no thread yet, or a call keeps it
            self.close()
            self._batches = queue.SimpleQueue()
            self._latest = batch.all_ended  # before the thread: after an interrupt it has to be ended, too
            _start_thread(partial(_make_batches, self._batches))
        self._latest = batch.all_ended
        self._batches.put(batch)
        answered = 0
        while not batch.all_ended.wait(stall) and time.monotonic() < deadline:
            if len(batch.ended) == answered:
                for _ in range(len(batch.waiting)):
                    _start_thread(batch.make_calls)
            answered = len(batch.ended)
