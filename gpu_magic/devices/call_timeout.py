"""Calls that may never come back, made on threads that can be left behind.

An NVML call into a sick driver can hang for minutes, and no Python call can be cancelled from outside.
So reads are made on a daemon thread. One that hangs keeps its thread; the others go on with the rest;
and whoever asked gets an answer for everything that did answer.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

__all__ = ["CallTimeout"]

T = TypeVar("T")

# After this long without progress another thread takes up the reads that follow. Longer than any
# healthy call (milliseconds), short enough that one hanging GPU does not keep the others waiting.
_STALL_SECONDS = 0.25


class _Round(Generic[T]):
    """One list of calls, handed out one by one to whichever thread asks."""

    def __init__(self, calls: Sequence[Callable[[], T]]) -> None:
        self.results: dict[int, T] = {}
        self.error: BaseException | None = None
        self.failed: set[int] = set()
        self.is_given_up = False
        self.latest = time.monotonic()  # when something last happened
        self.done = threading.Event()
        self._calls = calls
        self._next = 0
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """How many calls nobody has begun."""
        return max(0, len(self._calls) - self._next)

    def hangs(self, number: int) -> bool:
        """Whether a call was begun and has not come back."""
        return number < self._next and number not in self.results and number not in self.failed

    def work(self) -> None:
        while True:
            with self._lock:
                number = self._next
                self._next += 1
            if number >= len(self._calls) or self.is_given_up:
                return
            try:
                self.results[number] = self._calls[number]()
                self.latest = time.monotonic()
            except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
                self.error = error
                self.failed.add(number)
                self.done.set()
                return
            if len(self.results) == len(self._calls):
                self.done.set()


class _Worker:
    """A thread that waits for rounds, so that a steady reader starts none of its own each time."""

    def __init__(self) -> None:
        self._done: threading.Event | None = None  # of the round it was last given
        self._rounds: queue.SimpleQueue[_Round[Any] | None] = queue.SimpleQueue()
        _start(self._work)

    @property
    def hangs(self) -> bool:
        """Whether what it was last given has not been done, by it or by its helpers."""
        return self._done is not None and not self._done.is_set()

    def take(self, round_: _Round[Any]) -> None:
        self._done = round_.done
        self._rounds.put(round_)

    def retire(self) -> None:
        """Let it end, as soon as what it does comes back."""
        self._rounds.put(None)

    def _work(self) -> None:
        while (round_ := self._rounds.get()) is not None:
            round_.work()
            del round_  # and what it holds, while there is nothing to do


def _start(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="gpu_magic-nvml", daemon=True).start()


class CallTimeout:
    """Makes calls and gives up on those that take too long.

    Parameters
    ----------
    seconds
        How long a whole list of calls may take.

    """

    def __init__(self, seconds: float = 2.0) -> None:
        self.seconds = seconds
        self._hanging: dict[Hashable, tuple[_Round[Any], int]] = {}
        self._forget_threads()

    def _forget_threads(self) -> None:
        self._pid = os.getpid()
        self._worker: _Worker | None = None
        self._hanging.clear()

    def call(
        self, calls: Sequence[tuple[Hashable, Callable[[], T]]], seconds: float | None = None
    ) -> list[T | None]:
        """Make the calls, in order; None stands for one that did not come back in time.

        Parameters
        ----------
        calls
            Pairs of a key and the call. A key whose earlier call still hangs is not called again:
            it is None at once, until that call comes back.
        seconds
            For this list; None: as long as always.

        Raises
        ------
        BaseException
            What a call raised.

        """
        if os.getpid() != self._pid:  # threads do not survive a fork
            self._forget_threads()
        self._hanging = {key: at for key, at in self._hanging.items() if at[0].hangs(at[1])}
        ready = [number for number, (key, _) in enumerate(calls) if key not in self._hanging]
        round_: _Round[T] = _Round([calls[number][1] for number in ready])
        try:
            if ready:
                self._run(round_, self.seconds if seconds is None else seconds)
        finally:  # an interrupt comes here as well, and what hangs goes on hanging
            for place, number in enumerate(ready):
                if round_.hangs(place):
                    self._hanging[calls[number][0]] = (round_, place)
        if round_.error is not None:
            raise round_.error
        answers: list[T | None] = [None] * len(calls)
        for place, number in enumerate(ready):
            answers[number] = round_.results.get(place)
        return answers

    def close(self) -> None:
        """Let the waiting thread end."""
        if self._worker is not None and os.getpid() == self._pid:
            self._worker.retire()
        self._worker = None

    def _run(self, round_: _Round[T], seconds: float) -> None:
        give_up = time.monotonic() + seconds
        stall, helpers = min(_STALL_SECONDS, seconds / 8), 1
        if self._worker is None or self._worker.hangs:
            self.close()
            self._worker = _Worker()
        self._worker.take(round_)
        try:
            while not round_.done.wait(min(stall / 2, max(0.0, give_up - time.monotonic()))):
                now = time.monotonic()
                if now >= give_up:
                    return
                if now - round_.latest >= stall:
                    # Twice as many each time: where one call hangs, more may. They end with the round.
                    for _ in range(min(helpers, round_.waiting)):
                        _start(round_.work)
                    round_.latest, helpers = now, 2 * helpers
        finally:
            round_.is_given_up = True
