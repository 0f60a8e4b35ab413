"""`gpu_magic.map`: distributes calls over engines with ipyparallel's load-balanced view."""

from __future__ import annotations

import linecache
import pickle
import reprlib
import sys
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ipyparallel.serialize import PrePickled
from ipyparallel.util import progress
from IPython.core.getipython import get_ipython
from IPython.display import display
from tqdm import tqdm

from gpu_magic.cluster.calls import Failure, call, forget, keep
from gpu_magic.cluster.cluster import OUTPUT_SECONDS, about, capitalized, current_cluster
from gpu_magic.cluster.pickling import NotPickled, pickled
from gpu_magic.errors import CallFailed, ClusterError, show_as
from gpu_magic.gpus.request import Named, Word, parse
from gpu_magic.interrupts import defer_interrupts
from gpu_magic.text import listed, printable, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpu_magic.cluster.cluster import Cluster, Engine
    from gpu_magic.gpus.request import Request

__all__ = ["map_over"]

# Calls that ipyparallel has for each engine. One runs, and the others wait in its scheduler. After a failure
# the waiting calls still go to the engines, one by one.
_AHEAD = 8
_QUIET = 0.25  # seconds without a reply, after which all calls that run are in the function
_LOOK = 0.1  # seconds between two checks of the output and of the engines
_BAR = 1.0  # seconds until a progress bar is shown
_NAME, _ITEM = 40, 60  # characters in a message


def map_over(fn: Callable[[Any], Any], items: Iterable[Any], gpus: str) -> list[Any]:
    """Run `gpu_magic.map`, with `gpus` as typed after `%gpus`."""
    cluster = current_cluster()
    if not callable(fn):
        raise ClusterError(f"{fn!r:.40} is not a function, which map calls with each item.")
    numbers = [engine.number for engine in cluster.check(_numbers_with(cluster, gpus))]
    try:
        calls = _Calls(cluster, numbers, fn, list(items))
    except NotPickled as error:
        raise ClusterError(str(error)) from None
    try:
        return calls.results()
    except BaseException as error:  # noqa: BLE001 - also an interrupt, which is raised
        raise calls.end(error) from None


def _numbers_with(cluster: Cluster, gpus: str) -> list[int]:
    """Return the engines with the GPUs of a `%gpus` argument. A number means that GPU on each machine."""

    def check(request: Request) -> None:
        _engines_with(cluster, request, gpus)

    return _engines_with(cluster, parse(gpus, check), gpus)


def _engines_with(cluster: Cluster, request: Request, gpus: str) -> list[int]:
    devices = [(number, device) for number, engine in cluster.engines.items() for device in engine.devices]
    found: set[int] = set()
    names = ["all" if request is Word.ALL else gpus.lower()]
    if isinstance(request, Named):
        names = list(map(str, request.identifiers))
    for name in names:
        having = {
            number
            for number, device in devices
            if name in ("all", device.number_text) or str(device.uuid).startswith(name)
        }
        if not having:
            what = f"GPU {name}" if name.isdecimal() else printable(name)
            raise ClusterError(f"No engine has {what}. They have {listed(one.label for _, one in devices)}.")
        found |= having
    return sorted(found)


class _Calls:
    """The calls of a function with each item. `results` runs the calls, and `end` ends running calls."""

    def __init__(
        self, cluster: Cluster, numbers: Sequence[int], function: Callable[[Any], Any], items: Sequence[Any]
    ) -> None:
        self._cluster, self._client, self._numbers, self._items = cluster, cluster.client, numbers, items
        self._name = shortened(str(getattr(function, "__name__", type(function).__name__)), _NAME)
        self._function, self._token = pickled(self._name, function), uuid4().hex
        ready = [pickled(f"Item {position}", item) for position, item in enumerate(items)]
        self._files = self._function.files.union(*(item.files for item in ready))
        self._ready = deque(enumerate(item.text for item in ready))
        self._kept: dict[int, Any] = {}  # AsyncResults of `keep`, by engine number
        self._open: dict[int, Any] = {}  # AsyncResults of unfinished calls, by position
        # Positions of items whose calls have returned. None: `keep` has returned in an engine.
        self._done: SimpleQueue[int | None] = SimpleQueue()
        self._found: dict[int, Any] = {}
        # By position of the item: the call, the output that ipyparallel collects, and how much was shown.
        # The client drops a call's output with the reply, which may arrive before the output is read.
        self._output: dict[int, tuple[Any, Mapping[str, Any], dict[str, int]]] = {}

    def results(self) -> list[Any]:
        """Run the calls. Return the results in the order of the items."""
        sources = {file: lines for file in self._files if (lines := linecache.getlines(file))}
        for number in self._numbers:
            reply = self._client[number].apply_async(keep, self._token, self._function.text, sources)
            self._kept[number] = reply
            reply.add_done_callback(lambda _: self._done.put(None))
        view, function = self._client.load_balanced_view([]), PrePickled(call)
        begun, bar = time.monotonic(), None
        look = begun + _LOOK
        try:
            while len(self._found) < len(self._items):
                self._receive(look - time.monotonic())
                # Busy engines join later. Until then no call waits, because it could not move to them.
                if len(view.targets) < len(self._kept):
                    view.targets = [number for number, reply in self._kept.items() if reply.done()]
                ahead = _AHEAD if len(view.targets) == len(self._kept) else 1
                while self._ready and len(self._open) < ahead * len(view.targets):
                    position, item = self._ready.popleft()
                    reply = self._open[position] = view.apply_async(function, self._token, item)
                    self._output[position] = reply, reply.metadata, {}
                    reply.add_done_callback(lambda _, position=position: self._done.put(position))
                if time.monotonic() >= look:
                    look = time.monotonic() + _LOOK
                    self._show()
                    if self._ended():
                        raise ClusterError("An engine has ended.")  # `end` names the engine
                    if bar is None and look >= begun + _BAR:
                        bar = progress(desc=self._name, total=len(self._items), unit="call", disable=None)
                    if bar is not None:
                        bar.update(len(self._found) - bar.n)
            self._show(OUTPUT_SECONDS)
        finally:
            if bar is not None:
                bar.update(len(self._found) - bar.n)
                bar.close()
                # Delete the bar here, because an interrupt during a later `__del__` is lost.
                bar = None
        self._forget()
        return [self._found[position] for position in range(len(self._items))]

    def _receive(self, seconds: float) -> None:
        """Store the next result that arrives within some seconds, or raise its error."""
        with suppress(Empty):
            position = self._done.get(timeout=max(seconds, 0))
            if position is None:
                for number, reply in self._kept.items():
                    if reply.done() and (failure := reply.result()):
                        raise self._failed(failure, number, None)
                return
            reply = self._open[position]
            if isinstance(result := reply.result(), Failure):
                raise self._failed(result, reply["engine_id"], position)
            self._found[position] = pickle.loads(result)  # noqa: S301 - the user's own
            del self._open[position]

    def end(self, error: BaseException) -> BaseException:
        """End running calls. Restart engines that have ended or still run. Return the error to raise."""
        with suppress(KeyboardInterrupt), defer_interrupts():  # the first error is raised
            forgotten = self._forget()
            # Calls that start now return at once. Only the others need an interrupt. An interrupt between two
            # calls of an engine can lose the reply to one of them.
            waiting = {*self._open.values(), *forgotten.values()}
            while waiting and (replies := wait(waiting, _QUIET, FIRST_COMPLETED)).done:
                waiting = replies.not_done
            # Engines that are busy with other work are not interrupted.
            own = {
                number: reply.msg_ids[0] for number, reply in forgotten.items() if self._kept[number].done()
            }
            left = self._cluster.interrupt(own)
            self._show(OUTPUT_SECONDS)
            if (ended := self._ended()) and not isinstance(error, KeyboardInterrupt | CallFailed):
                error = self._engines_ended(ended)
            if (again := [*ended, *left]) and self._cluster.can_restart:
                self._cluster.restart(engine.number for engine in again)
                error.add_note(f"{about(again, 'was', 'were')} restarted without variables.")
        if isinstance(error, KeyboardInterrupt):
            show_as(error, "KeyboardInterrupt", *getattr(error, "__notes__", ()))
        return error

    def _forget(self) -> dict[int, Any]:
        """Have the engines forget the function. Return their AsyncResults by engine number."""
        there = [number for number in self._numbers if number in self._client.ids]
        return {number: self._client[number].apply_async(forget, self._token) for number in there}

    def _ended(self) -> list[Engine]:
        """Return the engines of these calls that have ended."""
        return [engine for engine in self._cluster.ended if engine.number in self._numbers]

    def _failed(self, failure: Failure, number: int, position: int | None) -> CallFailed:
        what = f"{self._name} cannot be loaded"
        if position is not None:
            what = f"{capitalized(self._item(position))} failed"
        text = failure.text
        shell = get_ipython()
        # IPython before 8.1 names cells in tracebacks by their files.
        call_cell = getattr(shell and shell.compile, "format_code_name", None)
        for file in self._files:  # name cells as the notebook's own tracebacks do
            if call_cell is not None and (cell := call_cell(file)):
                text = text.replace(f'File "{file}"', " ".join(cell))
        label = self._cluster.engines[number].label
        return CallFailed(f"{what} in {label}:\n{text.rstrip()}", position, number, failure.kind)

    def _engines_ended(self, ended: Sequence[Engine]) -> CallFailed:
        lost = [
            position
            for position, reply in self._open.items()
            if not reply.done() or getattr(reply.exception(), "ename", "") == "EngineError"
        ]
        position = lost[0] if len(lost) == 1 else None  # with several, the one that ran is unknown
        work = f"calls of {self._name}" if position is None else self._item(position)
        return CallFailed(
            f"{about(ended, 'has', 'have')} ended during {work}.", position, ended[0].number, ""
        )

    def _item(self, position: int) -> str:
        """Return an item as messages name it: `item 3 (0.01)`."""
        return f"item {position} ({shortened(reprlib.repr(self._items[position]), _ITEM)})"

    def _show(self, seconds: float = 0) -> None:
        """Show the calls' new output. After a result, wait up to `seconds` for late output."""
        for position, (reply, written, shown) in list(self._output.items()):
            is_whole = reply.done() and reply.wait_for_output(seconds)
            for stream in ("stdout", "stderr"):
                text, first = written[stream], shown.get(stream, 0)
                shown[stream] = len(text) if is_whole else text.rfind("\n") + 1
                lines = text[first : shown[stream]].splitlines()
                if lines:
                    text = "".join(f"[{position}] {line}\n" for line in lines)
                    tqdm.write(text, file=getattr(sys, stream), end="")  # above the progress bar
            if is_whole:
                for output in written["outputs"]:
                    display(output["data"], metadata=output["metadata"], raw=True)
                del self._output[position]
