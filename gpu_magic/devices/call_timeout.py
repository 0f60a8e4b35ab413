"""Makes calls that may never return, on threads that can be abandoned.

An NVML call can hang for minutes if the driver is in trouble, and Python cannot cancel the call. So a daemon
thread makes the calls, in order. If one call hangs, other threads make the remaining calls. The thread is
kept, because a new thread waits milliseconds for its turn on a busy machine. A thread for each GPU is
shorter, but reads 8 GPUs 20 % more slowly and 64 GPUs 40 %. `concurrent.futures` joins its threads at exit,
so a hanging driver would keep the process alive.
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

__all__ = ["IDENTITY_SECONDS", "CallTimeout"]

T = TypeVar("T")

# How long names and numbers are kept. A kernel can stay open for days, while an administrator splits a GPU
# or brings a lost GPU back.
IDENTITY_SECONDS = 60.0
# After this time without an answer, other threads make the remaining calls. A healthy call takes only
# milliseconds. A longer time would let a hanging GPU delay the other GPUs.
_STALL_SECONDS = 0.25


class _Call:
    """A call, and its result or error."""

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
    """Makes calls, and abandons those that take too long. Callers hold its `lock`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds  # for a list of calls
        self._begin()

    def _begin(self) -> None:
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] | None = None  # of the kept thread
        self._hanging: dict[Hashable, _Call] = {}

    @property
    def lock(self) -> threading.Lock:
        """The lock to hold during all other methods except `hangs`. A forked child has a new one."""
        if os.getpid() != self._pid:  # threads do not survive a fork, and one of them may have held the lock
            self._begin()
        return self._lock

    def call(
        self, functions: Sequence[tuple[Hashable, Callable[[], T]]], since: float | None = None
    ) -> list[T | None]:
        """Call functions in order, and return their results. None for a call that did not return in time.

        Each function has a key. While an earlier call with the same key hangs, the function is not called.
        With `since`, the time began at that moment, but at least a quarter of it is left. An error of a
        function is raised.
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
        finally:  # also after an interrupt: stop the remaining calls, and record those that hang
            never_begun = set(_taken_from(waiting))
            for key, call in calls.items():
                self._hanging.pop(key, None)  # the earlier call has ended
                if not call.has_ended and call not in never_begun:
                    self._hanging[key] = call
        for call in calls.values():
            if call.error is not None:
                raise call.error
        return [calls[key].result if key in calls else None for key, _ in functions]

    def hangs(self, key: Hashable) -> bool:
        """Return whether an abandoned call has not returned yet. Can be called on any thread."""
        call = self._hanging.get(key)
        return call is not None and not call.has_ended

    def late(self, key: Hashable) -> Any:
        """Return the late result of an abandoned call. None if it still hangs or was made again."""
        call = self._hanging.get(key)
        return call.result if call is not None and call.has_ended else None

    def close(self) -> None:
        """End the kept thread when its current call returns."""
        if self._jobs is not None:
            self._jobs.put(None)
        self._jobs = None

    def _wait(
        self, job: Callable[[], None], waiting: deque[_Call], all_ended: threading.Event, seconds: float
    ) -> None:
        """Run a job on the kept thread, and on more if it hangs, until all calls end or the time is up."""
        deadline, stall, left = time.monotonic() + seconds, min(_STALL_SECONDS, seconds / 8), len(waiting)
        if self._jobs is None:
            self._jobs = queue.SimpleQueue()
            _start_thread(_do, self._jobs)
        try:
            self._jobs.put(job)
            while not all_ended.wait(stall) and time.monotonic() < deadline:
                if left == (left := len(waiting)):  # one hangs, so each remaining call gets a thread
                    for _ in range(left):
                        _start_thread(job)
        finally:
            if not all_ended.is_set():  # it may hang
                self.close()


def _taken_from(waiting: deque[_Call]) -> Iterator[_Call]:
    """Yield each remaining call to only one thread, without a lock that a hanging thread could hold."""
    with contextlib.suppress(IndexError):
        while True:
            yield waiting.popleft()  # atomic


def _start_thread(target: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=target, args=arguments, name="gpu_magic-nvml", daemon=True).start()


def _do(jobs: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # frees its results while the thread waits
