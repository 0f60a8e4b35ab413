"""Calls of a function, spread over engines by ipyparallel: sends them, hears of results, and ends them."""

from __future__ import annotations

import pickle
import time
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ipyparallel.serialize import PrePickled

from gpu_magic.engines.call_output import CallOutput
from gpu_magic.engines.call_progress import CallProgress
from gpu_magic.engines.calls import Failure, call, forget, keep
from gpu_magic.engines.sources import sources_of
from gpu_magic.interrupts import uninterrupted

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Sequence

    from gpu_magic.engines.cluster import Cluster
    from gpu_magic.engines.engine import Engine
    from gpu_magic.launching.pickling import Pickled

__all__ = ["EnginesEnded", "Failed", "Spread"]

# Calls that ipyparallel has for each engine: one runs and the others wait. Those that wait when a call fails
# go through its scheduler nonetheless, one by one.
_AHEAD = 8
_QUIET = 0.25  # seconds without a reply: what runs now is in the function
_AGAIN = 0.1  # seconds between two looks at what calls write, and at which engines are there
_OUTPUT = 1.0  # seconds that the output of a call may come after its result


class Failed(Exception):  # noqa: N818 - becomes the user's error, in words
    """A function can't be used in an engine (position None), or a call has failed there."""

    def __init__(self, failure: Failure, engine: Engine, position: int | None = None) -> None:
        super().__init__(failure.text)
        self.failure, self.engine, self.position = failure, engine, position


class EnginesEnded(Exception):  # noqa: N818 - likewise
    """Engines have ended while calls were spread over them."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        super().__init__()
        self.engines = engines


class Spread:
    """Calls of a function with each of some items. `results` runs them, and `end` ends what still runs.

    Engines that do something else take part once that has ended, and are not interrupted before.

    Parameters
    ----------
    cluster
        The engines.
    numbers
        Those of the engines to use.
    name
        What the function is called.
    function
        The function.
    items
        What it is called with. They are taken away as they are sent.

    Attributes
    ----------
    files
        The files of the code that goes to the engines.

    """

    def __init__(
        self, cluster: Cluster, numbers: Sequence[int], name: str, function: Pickled, items: deque[Pickled]
    ) -> None:
        self._cluster, self._client, self._numbers = cluster, cluster.client, numbers
        self._function, self._items, self._count = function, items, len(items)
        self.files = function.files.union(*(item.files for item in items))
        self._token = uuid4().hex
        self._view = self._client.load_balanced_view()
        self._call = PrePickled(call)
        self._heard: SimpleQueue[Callable[[], None]] = SimpleQueue()
        busy = {engine.number for engine in cluster.busy}
        self._own = {*numbers} - busy  # engines that do nothing else
        self._ready: list[int] = []
        self._open: dict[int, Any] = {}  # what was sent and has not come back: AsyncResults by position
        self._results: dict[int, Any] = {}
        self._output, self._progress = CallOutput(cluster.client), CallProgress(name, self._count)

    def results(self) -> list[Any]:
        """Run the calls; return their results in the order of the items.

        Raises
        ------
        Failed, EnginesEnded
            The first thing that has gone wrong. Other calls can still run.

        """
        try:
            self._keep()
            look = time.monotonic() + _AGAIN
            while len(self._results) < self._count:
                self._send()
                self._hear(max(look - time.monotonic(), 0))
                if time.monotonic() >= look:
                    self._look()
                    look = time.monotonic() + _AGAIN
            self._output.show(_OUTPUT)
        except (Failed, EnginesEnded):
            raise
        except Exception:
            self._check_engines()  # ipyparallel has errors of several types for them
            raise
        finally:
            self._progress.close(len(self._results))
        self._forget()
        return [self._results[position] for position in range(self._count)]

    def end(self) -> list[Engine]:
        """End the calls that run; start engines anew that have ended or that go on, and return those."""
        restarted: list[Engine] = []
        with suppress(KeyboardInterrupt), uninterrupted():  # what has ended the calls is raised
            is_running = self._still_running([*self._open.values(), *self._forget()])
            left = self._cluster.interrupt([*self._open.values()], self._own) if is_running else []
            self._output.show(_OUTPUT)
            ended = [engine for engine in self._cluster.ended if engine.number in self._numbers]
            numbers = [engine.number for engine in (*ended, *left)]
            if numbers and self._cluster.can_restart:
                restarted += self._cluster.restart(numbers)
        return restarted

    def lost(self) -> list[int]:
        """Return the positions of the items whose calls have ended with their engines."""
        return [
            position
            for position, one in self._open.items()
            if not one.done() or getattr(one.exception(), "ename", "") == "EngineError"
        ]

    @staticmethod
    def _still_running(replies: Sequence[Any]) -> bool:
        """Wait for what returns by itself, as all does that begins once the function is forgotten.

        Where an interrupt reaches an engine between two calls, the reply to one of them can be lost, and
        ipyparallel goes on to wait for it.
        """
        returned, waiting = set(replies), set(replies)
        while returned and waiting:
            returned, waiting = wait(waiting, _QUIET, FIRST_COMPLETED)
        return bool(waiting)

    def _keep(self) -> None:
        sources = sources_of(self.files)
        for number in self._numbers:
            reply = self._client[number].apply_async(keep, self._token, self._function.text, sources)
            self._tell_when_done(reply, self._note_kept, number)

    def _send(self) -> None:
        """Hand calls to ipyparallel, for the engines that have the function."""
        # A call that waits can't go to an engine that takes part later.
        ahead = _AHEAD if len(self._ready) == len(self._numbers) else 1
        while self._items and len(self._open) < ahead * len(self._ready):
            position = self._count - len(self._items)
            self._view.targets = self._ready
            reply = self._view.apply_async(self._call, self._token, self._items.popleft().text)
            self._open[position] = reply
            self._output.follow(position, reply)
            self._tell_when_done(reply, self._note_result, position)

    def _tell_when_done(self, reply: Any, note: Callable[[Any, int], None], number: int) -> None:
        # It is called in a thread of ipyparallel's.
        reply.add_done_callback(lambda done: self._heard.put(partial(note, done, number)))

    def _hear(self, seconds: float) -> None:
        try:
            note = self._heard.get(timeout=seconds)
        except Empty:
            return
        note()

    def _note_kept(self, reply: Any, number: int) -> None:
        if failure := reply.result():
            raise Failed(failure, self._cluster.engines[number])
        self._ready.append(number)
        self._own.add(number)

    def _note_result(self, reply: Any, position: int) -> None:
        result = reply.result()
        del self._open[position]
        if isinstance(result, Failure):
            raise Failed(result, self._cluster.engines[reply["engine_id"]], position)
        self._results[position] = pickle.loads(result)  # noqa: S301 - the user's own

    def _look(self) -> None:
        self._output.show()
        self._progress.update(len(self._results))
        self._check_engines()

    def _check_engines(self) -> None:
        there = self._client.ids
        if gone := [number for number in self._numbers if number not in there]:
            raise EnginesEnded(self._cluster.find(gone))

    def _forget(self) -> list[Any]:
        """Have the engines forget the function; return their replies."""
        there = self._client.ids
        return [
            self._client[number].apply_async(forget, self._token)
            for number in self._numbers
            if number in there
        ]
