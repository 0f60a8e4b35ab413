"""A cluster: ipyparallel's client, and what each of its engines has and does."""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpu_magic.engines.activity import Activity
from gpu_magic.engines.engine import Engine, EngineNumber
from gpu_magic.engines.in_engine import begin
from gpu_magic.engines.processes import CONTROLLER
from gpu_magic.errors import ClusterError
from gpu_magic.launching.guardian import send
from gpu_magic.text import counted, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpu_magic.engines.processes import LocalProcesses

__all__ = ["Cluster"]

_ANSWER = 60.0  # seconds that an engine may take from its start to its first answer
_INTERRUPTED = 5.0  # seconds that it may take to answer an interrupt
_GONE = 30.0  # seconds until ipyparallel knows that an engine has ended
_AGAIN = 0.02


class Cluster:
    """Engines that have their GPUs, and are ready. `str` returns them, a line.

    Parameters
    ----------
    client
        ipyparallel's.
    engines
        All of them, in the order of their numbers.
    processes
        Those that run here; None: somebody else has started the engines.

    Attributes
    ----------
    engines
        All of them by their numbers, also those that have ended.
    activity
        What they do, and since when.
    on_end
        Called with a text when an engine has ended by itself, in a thread of its own; writes it to stderr.
    is_stopped
        Whether `stop` was called.

    """

    def __init__(
        self, client: Any, engines: Iterable[Engine], processes: LocalProcesses | None = None
    ) -> None:
        self.client, self._processes = client, processes
        self.engines = {engine.number: engine for engine in engines}
        self.on_end: Callable[[str], None] = _write
        self.is_stopped = False
        self._left: list[Engine] = []  # those that have not answered an interrupt
        self.activity = Activity(client)
        if processes:
            processes.on_end = self._note_end

    @property
    def alive(self) -> list[Engine]:
        """The engines that can be used."""
        there = set(self.client.ids)
        return [engine for number, engine in self.engines.items() if number in there]

    @property
    def ended(self) -> list[Engine]:
        """The engines that have ended."""
        alive = self.alive
        return [engine for engine in self.engines.values() if engine not in alive]

    def find(self, numbers: Iterable[int]) -> list[Engine]:
        """Return engines by their numbers.

        Raises
        ------
        ClusterError
            There is no such engine.

        """
        wanted = list(numbers)
        if unknown := [number for number in wanted if number not in self.engines]:
            there = listed(map(str, self.engines))
            raise ClusterError(f"There is no engine {unknown[0]}; there are {there}.")
        return [self.engines[number] for number in wanted]

    def targets(self, numbers: Iterable[int] | None = None) -> list[EngineNumber]:
        """Return engines for a view of ipyparallel's, which shows their GPUs in front of their outputs.

        Parameters
        ----------
        numbers
            Those of the engines; None: all.

        Raises
        ------
        ClusterError
            There is no such engine, or it has ended.

        """
        self._check_controller()
        wanted = self.find(self.engines if numbers is None else numbers)
        ended = self.ended
        if gone := [engine for engine in wanted if engine in ended]:
            others = ",".join(str(engine.number) for engine in wanted if engine not in ended)
            raise ClusterError(
                f"{_named(gone, 'has')} ended: {self._how_to_restart(gone)}"
                f"{f', and %%px --targets {others} runs on the others' if others else ''}."
            )
        if self._left:
            busy = self.busy
            self._left = [engine for engine in self._left if engine in busy]
        if left := [engine for engine in wanted if engine in self._left]:
            raise ClusterError(f"{self.still_running(left)}.")
        return [EngineNumber(engine) for engine in wanted]

    def still_running(self, engines: Sequence[Engine]) -> str:
        """Return what to do about engines that have not answered an interrupt, without a full stop."""
        return (
            f"{_named(engines, 'runs')} on what was interrupted, in code that does not ask for interrupts: "
            f"{self._how_to_restart(engines)}"
        )

    @property
    def can_restart(self) -> bool:
        """Whether `restart` can start engines anew: they were started by gpu_magic."""
        return self._processes is not None

    def restart(self, numbers: Iterable[int] | None = None) -> list[Engine]:
        """End engines, whatever they do, and start them anew with their GPUs; return them.

        Parameters
        ----------
        numbers
            Those of the engines; None: those that have ended.

        Raises
        ------
        ClusterError
            There is no such engine, it was started by somebody else, or does not start.

        """
        engines = self.ended if numbers is None else self.find(numbers)
        self._check_controller()
        processes = self._processes
        if processes is None:
            raise ClusterError("These engines were not started by gpu_magic, and can't be restarted by it.")
        numbers = [engine.number for engine in engines]
        for engine in engines:
            processes.expect_end(engine.number)
            send(engine.process, signal.SIGKILL)
        for number in numbers:
            processes.wait_for_end(number)
        deadline = time.monotonic() + _GONE
        while set(numbers) & set(self.client.ids):
            if time.monotonic() > deadline:
                raise ClusterError("The controller does not answer: %gpu_cluster stop, and start anew.")
            time.sleep(_AGAIN)
        for number in numbers:
            processes.start(number)
        self.begin(numbers)
        return self.find(numbers)

    @property
    def busy(self) -> list[Engine]:
        """The engines that run something, or have it in their queues, whoever has sent it."""
        self._check_controller()
        numbers = self.activity.busy()
        return [engine for engine in self.alive if engine.number in numbers]

    def interrupt(self, jobs: Any, numbers: Iterable[int] | None = None) -> list[Engine]:
        """Interrupt engines that run something; return those that go on after 5 s.

        Code in C that does not ask for signals goes on: a collective that waits for other ranks, for example.

        Parameters
        ----------
        jobs
            What is not to be begun any more: ipyparallel's AsyncResult, or several.
        numbers
            Those of the engines; None: all.

        """
        meant = set(self.engines if numbers is None else numbers)
        deadline = time.monotonic() + _INTERRUPTED
        if busy := [engine for engine in self.busy if engine.number in meant]:
            running = [engine.number for engine in busy]
            self.client.abort(jobs, targets=running, block=False)
            self.client.send_signal(signal.SIGINT, targets=running, block=False)
        while busy and time.monotonic() < deadline:
            time.sleep(_AGAIN)
            busy = [engine for engine in self.busy if engine.number in meant]
        self._left = busy
        return busy

    def stop(self) -> None:
        """End all engines, and return when nothing of them is left."""
        self.is_stopped = True
        self.activity.stop()
        self.client.close()
        if self._processes:
            self._processes.end()

    def __str__(self) -> str:
        engines = list(self.engines.values())
        return f"{counted(len(engines), 'engine')}: {', '.join(map(str, engines))}"

    def __repr__(self) -> str:
        return f"<Cluster {self}>"

    def begin(self, numbers: Iterable[int] | None = None) -> None:
        """Wait until engines have started, and make them ready.

        Parameters
        ----------
        numbers
            Those of the engines; None: all.

        Raises
        ------
        ClusterError
            One of them has ended, or does not answer.

        """
        deadline = time.monotonic() + _ANSWER
        replies = {}
        for number in self.engines if numbers is None else numbers:
            while number not in self.client.ids:
                self._check_start(number, deadline)
            log = str(self._processes.log(number)) if self._processes else ""
            replies[number] = self.client[number].apply_async(begin, log)
        for number, reply in replies.items():
            while not reply.done():
                self._check_start(number, deadline)
            answer = reply.get()
            self.engines[number] = replace(self.engines[number], host=answer.host, process=answer.process)
        if self._processes:
            self._processes.keep(self.engines.values())

    def _check_controller(self) -> None:
        """Raise ClusterError where the controller has ended: whoever asks it waits for ever."""
        if self._processes and CONTROLLER in self._processes.codes:
            raise ClusterError("The controller of the engines has ended: %gpu_cluster stop, and start anew.")

    def _check_start(self, number: int, deadline: float) -> None:
        if self._processes:
            self._processes.check(number)
        if time.monotonic() > deadline:
            raise ClusterError(f"Engine {number} has not answered within {_ANSWER:.0f} s.")
        time.sleep(_AGAIN)

    def _how_to_restart(self, engines: Sequence[Engine]) -> str:
        """Return what starts engines anew, as a clause."""
        names = ",".join(str(engine.number) for engine in engines)
        return f"%gpu_cluster restart {names} starts {'it' if len(engines) == 1 else 'them'} anew"

    def _note_end(self, number: int) -> None:
        """Say that a process has ended: which, how, and what it has written last."""
        assert self._processes is not None  # noqa: S101 - who else calls
        how, last = self._processes.how_it_ended(number), self._processes.last_lines(number)
        if number == CONTROLLER:
            text = f"The controller of the engines: {how}; %gpu_cluster stop, and start anew."
        else:
            engine = self.engines[number]
            text = f"{_capitalized(engine.label)}: {how}; {self._how_to_restart([engine])}."
        self.on_end("\n".join([text, *last]))


def _write(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _named(engines: Sequence[Engine], verb: str) -> str:
    """Return engines as the beginning of a sentence: `Engine 0 (GPU 2) and engine 1 (GPU 0) have`."""
    several = {"has": "have", "runs": "run"}
    text = _capitalized(listed(engine.label for engine in engines))
    return f"{text} {verb if len(engines) == 1 else several[verb]}"


def _capitalized(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"
