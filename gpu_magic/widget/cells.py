"""The cells that this kernel has run in the last minutes: when each began and ended, for the charts."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.placement.thread_task import ThreadTask
from gpu_magic.process.tasks import tasks
from gpu_magic.widget.page_state import CellSpan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["CellTimes"]

_KEPT = 180.0  # seconds after its end: what a chart spans
# Cells that are over within this time become one span, as a chart has a few pixels for it. A cell that runs
# is told after this time, when it can't become a part of one.
_SHORT = 1.0  # seconds
_MOST = 400  # spans, however a cell may be numbered
_MOST_BESIDE = 32  # that run in the background, or did


class _Span(NamedTuple):
    """As `CellSpan`, with times of `time.monotonic`."""

    id: int
    first: int | None
    last: int | None
    begin: float
    end: float


class CellTimes:
    """Notes when cells begin and end.

    `begin` and `end` are called on the main thread, `spans` on any, one at a time. The lock guards what they
    share, and is held for microseconds: a cell may wait for it.

    Parameters
    ----------
    clock
        Returns the time in seconds, from any moment on: that of `ThreadTask`, as tasks are told by it.

    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._spans: deque[_Span] = deque(maxlen=_MOST)
        self._next = 0  # the id of the next span
        self._running: tuple[int | None, float] | None = None  # its number, and when it began
        self._beside: dict[float, int] = {}  # the ids of tasks, by when they began
        self._next_beside = -1

    def begin(self, number: int | None) -> None:
        """Note that a cell begins; one without a history has no number."""
        with self._lock:
            self._running = number, self._clock()

    def end(self, *, is_numbered: bool = True) -> None:
        """Note the end of the cell that has begun, and whether it had a number; without one, do nothing."""
        with self._lock:
            if self._running is not None:
                (number, begin), self._running = self._running, None
                self._keep(number if is_numbered else None, begin, self._clock())

    def drop_running(self) -> None:
        """Forget the cell that has begun: nobody will tell its end."""
        with self._lock:
            self._running = None

    def spans(self, second_at: Callable[[float], float]) -> list[CellSpan]:
        """Return the cells that a chart can show in the order of their ends, then those in the background.

        Parameters
        ----------
        second_at
            Returns a time of `time.monotonic` on the clock that readings have: see `History`.

        """
        with self._lock:
            kept, running, next_id = list(self._spans), self._running, self._next
        now = self._clock()
        found = [
            CellSpan(span.id, span.first, span.last, second_at(span.begin), second_at(span.end), False)
            for span in kept
            if span.end >= now - _KEPT
        ]
        if running is not None and now - running[1] >= _SHORT:
            number, begin = running
            found.append(CellSpan(next_id, number, number, second_at(begin), None, False))
        return found + list(self._spans_beside(now, second_at))

    def _keep(self, number: int | None, begin: float, end: float) -> None:
        """Keep a cell that has ended, where it is short together with the one before."""
        spans = self._spans
        while spans and spans[0].end < end - _KEPT:
            spans.popleft()
        if number is None and end - begin < _SHORT:
            return  # nobody has typed it: a front end asks for variables after each cell, for example
        if spans and end - spans[-1].begin < _SHORT and number is not None and spans[-1].last == number - 1:
            spans[-1] = spans[-1]._replace(last=number, end=end)
            return
        spans.append(_Span(self._next, number, number, begin, end))
        self._next += 1

    def _spans_beside(self, now: float, second_at: Callable[[float], float]) -> Iterator[CellSpan]:
        """Return the cells that run in the background, and those that did, as far as the tasks are known."""
        known, self._beside = self._beside, {}
        listed = [task for task in tasks if isinstance(task, ThreadTask)][-_MOST_BESIDE:]
        for task in listed:
            end = None if task.is_running else task.began + task.seconds
            if end is not None and end < now - _KEPT:
                continue
            if task.began not in known:
                known[task.began] = self._next_beside
                self._next_beside -= 1
            self._beside[task.began] = known[task.began]
            yield CellSpan(
                known[task.began],
                task.cell,
                task.cell,
                second_at(task.began),
                None if end is None else second_at(end),
                True,
            )
