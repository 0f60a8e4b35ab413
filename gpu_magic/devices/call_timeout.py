"""Calls that may never return, made on threads that can be left behind.

An NVML call into a driver in trouble can hang for minutes, and Python can't cancel it from outside. So the
calls are made on a daemon thread, in order; where one hangs, other threads make those that wait. The thread
is kept, as a new one waits milliseconds for its turn on a busy machine.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

__all__ = ["HUNG", "IDENTITY_SECONDS", "CallTimeout"]

T = TypeVar("T")

HUNG = "not answering: a call to the driver timed out"  # after "GPU 1 is"
# How long names and numbers are kept: an administrator can split a GPU, or bring a lost one back, while a
# kernel stays open for days.
IDENTITY_SECONDS = 60.0
# After this long without an answer other threads make the calls that wait. It is longer than any healthy call
# takes (milliseconds), and short enough that a GPU that hangs does not delay the others much.
_STALL_SECONDS = 0.25


class _Call:
    """A call, and what it returned or raised."""

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


class CallTimeout:
    """Makes calls, and gives up on those that take too long. For one thread at a time, with its `lock`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds  # that a list of calls may take
        self._begin()

    def _begin(self) -> None:
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] | None = None  # of the kept thread
        self._hanging: dict[Hashable, _Call] = {}

    @property
    def lock(self) -> threading.Lock:
        """The lock to hold during all other methods but `hangs`; in a forked child a new one."""
        if os.getpid() != self._pid:  # threads do not survive a fork, nor does one that held the lock
            self._begin()
        return self._lock

    def call(
        self, functions: Sequence[tuple[Hashable, Callable[[], T]]], since: float | None = None
    ) -> list[T | None]:
        """Call functions, in order, and return what they return; None for a call that did not return in time.

        Each stands behind a key. While a call of that key still hangs, its function is not called. The list
        may take what is left of the time `since` a moment, and a quarter at least. What a function raises is
        raised.
        """
        calls = {key: _Call(function) for key, function in functions if not self.hangs(key)}
        waiting, all_ended = deque(calls.values()), threading.Event()

        def make_calls() -> None:
            for call in _taken_from(waiting):
                call.make()
                if all(one.has_ended for one in calls.values()):
                    all_ended.set()

        gone = 0 if since is None else time.monotonic() - since
        try:
            if calls:
                self._wait(make_calls, waiting, all_ended, max(self._seconds / 4, self._seconds - gone))
        finally:  # after an interrupt, too: no thread begins more, and calls that hang are still to be known
            never_begun = set(_taken_from(waiting))
            for key, call in calls.items():
                self._hanging.pop(key, None)  # it has ended meanwhile
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
        if self._jobs is not None:
            self._jobs.put(None)
        self._jobs = None

    def _wait(
        self, job: Callable[[], None], waiting: deque[_Call], all_ended: threading.Event, seconds: float
    ) -> None:
        """Have the kept thread do a job, and others where it hangs, until all calls end or the time is up."""
        deadline, stall, left = time.monotonic() + seconds, min(_STALL_SECONDS, seconds / 8), len(waiting)
        if self._jobs is None:
            self._jobs = queue.SimpleQueue()
            _start_thread(_do, self._jobs)
        try:
            self._jobs.put(job)
            while not all_ended.wait(stall) and time.monotonic() < deadline:
                if left == (left := len(waiting)):  # one hangs: each that waits gets a thread of its own
                    for _ in range(left):
                        _start_thread(job)
        finally:
            if not all_ended.is_set():  # it may hang
                self.close()


def _taken_from(waiting: deque[_Call]) -> Iterator[_Call]:
    """Yield the calls that wait, each to one thread alone, without a lock that one that hangs could hold."""
    with contextlib.suppress(IndexError):
        while True:
            yield waiting.popleft()  # atomic


def _start_thread(target: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=target, args=arguments, name="gpu_magic-nvml", daemon=True).start()


def _do(jobs: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # and the results that it holds, while the thread waits
